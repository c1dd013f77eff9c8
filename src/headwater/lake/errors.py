"""What can go wrong in a lake, in three kinds: the caller's mistake, the world's, and a race that another job won."""


class LakeError(Exception):
    """A load or a question that could not be carried out. The message says what to do next."""


class LakeUsageError(LakeError):
    """What was asked for makes no sense as it stands: a name, an option, a column."""


class LakeBusyError(LakeError):
    """Other writers were quicker again and again; nothing of this load was written."""
