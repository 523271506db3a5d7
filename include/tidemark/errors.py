"""The type of an exception decides what a caller does; its exit code is what a shell sees."""


class TidemarkError(Exception):
    """An error that is told in one line: the act, the subject, what was found, what is wanted."""

    exit_code = 1


class WrongUse(TidemarkError):
    """The input is wrong: correct it; trying again changes nothing."""

    exit_code = 2


class ServiceUnreachable(TidemarkError):
    """A service does not answer: try again when it does."""

    exit_code = 3


class CommitFailed(TidemarkError):
    """Nothing was written because the state had moved on: read it again and retry."""


class CommitStateUnknown(TidemarkError):
    """The answer was lost: read back what happened before anything else."""


class Fenced(TidemarkError):
    """The lease belongs to somebody else: stop at once, write nothing more."""


class NotYet(TidemarkError):
    """Asked before its time: ask again later."""


class DataLoss(TidemarkError):
    """Records that were promised are not there: an operator has to decide."""


class CorruptFile(TidemarkError):
    """A file is not what its writer wrote."""


class AlreadyExists(TidemarkError):
    """The name is taken and nothing was changed."""


class NotFound(TidemarkError):
    """There is nothing below that name."""
