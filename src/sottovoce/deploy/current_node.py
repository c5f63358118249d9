"""A client that follows its own file: a change counts from the next question on.

While the file cannot be read nothing is answered. The rows are read again with it, and at no other time.
"""

from sottovoce.core import check
from sottovoce.deploy import wire
from sottovoce.deploy.node import Node


class CurrentNode:
    """A `Node` that stays in memory, and is replaced by the one that its file describes now."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def most(self) -> int:
        """Bytes of arrays that a question may have."""
        return self._node.limits.message_bytes

    def reply_to(self, question: wire.Question) -> wire.Response:
        try:
            self._node = self._node.renewed()
        except check.SottovoceError as error:
            self._node.home.note(f"no question is answered: {error}")
            return wire.Reply(wire.FAILED, "its own file cannot be read")
        return self._node.reply_to(question)
