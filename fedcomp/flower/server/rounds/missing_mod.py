"""Nodes whose ClientApp handles a message without CompressionMod: one sentence in the server's log says what to change."""

from collections.abc import Sequence
from logging import WARNING

from fedcomp.flower import records
from fedcomp.flower.compat import UNAVAILABLE, is_about_array_type, is_of_old_client, log
from fedcomp.flower.server.rounds.participation import names_of
from fedcomp.flower.server.rounds.validated_reply import ReceivedReply

FIX = "ClientApp(mods=[CompressionMod(), ...])"


def check_mod(server_round: int, replies: Sequence[ReceivedReply], asked: int, *, any_frame: bool, train: bool) -> None:
    """Log which of the `asked` nodes ran without CompressionMod.

    `any_frame` says whether any node has sent a frame in this run.  If none has, no training reply will ever count: raises
    `ValueError` if all of several asked nodes lack the mod in a training round.  A single node cannot end a run.
    """
    answers = [each for each in replies if not (each.message.has_error() and each.message.error.code in UNAVAILABLE)]
    without = {each.message.metadata.src_node_id for each in answers if _lacks_mod(each)}
    handler = "train" if train else "evaluate"
    if without:
        text = (
            f"fedcomp: round {server_round}: no CompressionMod before @app.{handler} on {names_of(without)}; "
            f"it must be the first mod of the whole ClientApp: {FIX}"
        )
        if train and not any_frame and len(without) == asked > 1:
            raise ValueError(text)
        log(WARNING, "%s", text)
    elif train and not any_frame and answers and all(each.message.has_error() for each in answers):
        reason = str(answers[0].message.error.reason)
        advice = "" if records.BY_MOD in reason else f"; if the ClientApp has no CompressionMod, add it: {FIX}"
        if is_of_old_client(answers[0].message.error):
            advice = (
                "; it has clients of Flower's old API, such as NumPyClient; functions under @app.train() are needed"
            )
        log(WARNING, "fedcomp: round %d: all replies are errors, the first is %s%s", server_round, reason, advice)


def _lacks_mod(reply: ReceivedReply) -> bool:
    """Return whether an app without the mod made `reply`: an error about the type of the frame's array, or no frame."""
    if reply.message.has_error():
        return is_about_array_type(reply.message.error, records.STYPE)
    return not reply.contents.frames
