"""Explanations of documents: which words put a document in its cluster, and which words define a cluster.

`whycluster.explain` explains a pipeline that begins with a vectorizer (`WordVectors`, `Sentences`, or
scikit-learn's `CountVectorizer`, `TfidfVectorizer` or `HashingVectorizer`) like any other model. It returns a
`TextExplanation`.

Modules, in reading order:

- `word_vectors`: `WordVectors`, a vectorizer that represents a document by the mean of its word vectors;
  `estimator`: its base class
- `documents`: the user's documents as a validated table
- `alignment`: maps positions in a processed text back to the original text
- `finders`: the words of a text and the terms that a vectorizer counts in it
- `words`: arrays of words and terms; relevance is shared among words here
- `encoder`: the interface of vectorizers and sentence encoders
- `vectorization`: a vectorizer and the steps after it; the relevance of words is computed here
- `sentences`: `Sentences`, a transformer from documents to the embeddings of a sentence encoder
- `pieces`: the words of a text, and the pieces into which a subword tokenizer splits them
- `static_tables`: sentence encoders that average one vector per piece
- `transformer`: sentence encoders that read pieces in context; needs torch
- `encoding`: a sentence encoder and the steps after it
- `network`: the network of a pipeline that begins with a vectorizer
- `labels`: labels of documents, and models of their embeddings
- `topics`: topics of BERTopic; needs bertopic
- `explanation`, `summary`: the results, per document and per cluster
- `html`: documents as web pages, with words highlighted by relevance
"""

from whycluster.text.explanation import TextExplanation, TopWords, Word
from whycluster.text.sentences import Sentences
from whycluster.text.summary import TextSummary
from whycluster.text.word_vectors import WordVectors

__all__ = ["Sentences", "TextExplanation", "TextSummary", "TopWords", "Word", "WordVectors"]
