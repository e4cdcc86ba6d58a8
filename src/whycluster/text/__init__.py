"""Documents: which words of a text put it into its cluster, and which words make a cluster.

A pipeline that begins with a vectorizer (`WordVectors`, or scikit-learn's `CountVectorizer`,
`TfidfVectorizer`, `HashingVectorizer`) is explained by `whycluster.explain` like any other model; what comes
back is a `TextExplanation`.
"""

from whycluster.text.explanation import TextExplanation, TopWords, Word
from whycluster.text.summary import TextSummary
from whycluster.text.word_vectors import WordVectors

__all__ = ["TextExplanation", "TextSummary", "TopWords", "Word", "WordVectors"]
