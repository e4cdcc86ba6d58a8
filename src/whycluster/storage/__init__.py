"""Networks and explanations as files."""
