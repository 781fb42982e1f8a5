"""Parsing alone: what the command line of training makes of its arguments."""

from gnmt.training.cli import TrainingCLI


class ParseOnly(TrainingCLI):
    """The command line of training, stopped before anything is built."""

    def before_instantiate_classes(self):
        pass

    def instantiate_classes(self):
        pass
