"""How texts are divided into codes: what keys have in common is left out, and what many keys share is looked into further."""
