"""Nodes whose ClientApp handles a message without CompressionMod: one sentence in the server's log says what to change."""

from collections.abc import Sequence
from logging import WARNING

from flwr.app import Message

from fedcomp.errors import CorruptError
from fedcomp.flower import records
from fedcomp.flower.compat import UNAVAILABLE, is_about_array_type, log
from fedcomp.flower.server.rounds.participation import names_of

FIX = "ClientApp(mods=[CompressionMod(), ...])"


def check_mod(server_round: int, replies: Sequence[Message], asked: int, *, any_frame: bool, train: bool) -> None:
    """Log which of the `asked` nodes ran without CompressionMod.

    `any_frame` says whether any node has sent a frame in this run.  If none has, no training reply will ever count: raises
    `ValueError` if all of several asked nodes lack the mod in a training round.  A single node cannot end a run.
    """
    replies = [reply for reply in replies if not (reply.has_error() and reply.error.code in UNAVAILABLE)]
    without = {reply.metadata.src_node_id for reply in replies if _lacks_mod(reply)}
    handler = "train" if train else "evaluate"
    if without:
        text = (
            f"fedcomp: round {server_round}: no CompressionMod before @app.{handler} on {names_of(without)}; "
            f"it must be the first mod of the whole ClientApp: {FIX}"
        )
        if train and not any_frame and len(without) == asked > 1:
            raise ValueError(text)
        log(WARNING, "%s", text)
    elif train and not any_frame and replies and all(reply.has_error() for reply in replies):
        reason = str(replies[0].error.reason)
        advice = "" if records.BY_MOD in reason else f"; if the ClientApp has no CompressionMod, add it: {FIX}"
        log(WARNING, "fedcomp: round %d: all replies are errors, the first is %s%s", server_round, reason, advice)


def _lacks_mod(reply: Message) -> bool:
    """Return whether an app without the mod made `reply`: an error about the type of the frame's array, or no frame."""
    if reply.has_error():
        return is_about_array_type(reply.error, records.STYPE)
    try:
        return records.packed(reply.content) is None
    except CorruptError:
        return False
