"""All claims of the project's two founding texts that the study can decide."""

from gnmt.study.gradient_claims import GRADIENT_CLAIMS
from gnmt.study.learning_claims import LEARNING_CLAIMS

CLAIMS = LEARNING_CLAIMS + GRADIENT_CLAIMS
