"""The one switch: what the oracle answers, what happens to an upload, and what is printed with the result."""

from sottovoce.privacy.modes.base import NoPrivacy, PrivacyMode, Published
from sottovoce.privacy.modes.columns import ProvenColumns
from sottovoce.privacy.modes.rows import Proven

Privacy = NoPrivacy | Published | Proven
VerticalPrivacy = NoPrivacy | Published | ProvenColumns

__all__ = ["NoPrivacy", "Privacy", "PrivacyMode", "Proven", "ProvenColumns", "Published", "VerticalPrivacy"]
