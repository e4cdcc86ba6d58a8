"""The method: energies, evidence, rules, attribution."""
