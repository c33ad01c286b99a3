"""Words for persons, which a process is not: it is "the worker", "it"."""

import re

PERSONS = re.compile(
    r"\b(?:he|him|his|himself|she|her|hers|herself|who|whom|whoever|whomever"
    r"|somebody|nobody|anybody|everybody|everyone)\b(?! et al)",
    re.I,
)
