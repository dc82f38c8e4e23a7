"""Exercises in a notebook: %%exercise keeps an answer, check() grades it, hint() helps. The grader itself is minispore/grade."""
import os
from pathlib import Path

from minispore.grade.exercise import find, learner_folder
from minispore.grade.report import Grade
from minispore.grade.submission import Submission, grade_apart

USAGE = "%%exercise e05: the name of an exercise stands behind it, and the answer in the lines below"


class Text:
    """A text that a notebook shows as Markdown."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self):
        return self.text

    def _repr_markdown_(self):
        return self.text


def check(name: str) -> Grade:
    """Grade exercises/e05.py of the course you are in, in a process of its own; shown as a card.

    FileNotFoundError outside a course; ValueError if there is no such exercise.
    """
    task = find(name)
    return grade_apart(Submission(task, learner_folder() / f"{task.name}.py"))


def hint(name: str, number: int = 1) -> Text:
    """A hint, from gentle (1) to nearly there. ValueError that says how many there are.

    >>> str(hint("e05", 1))[:28]
    'Begin with two ranks, 0 and '
    """
    from minispore.grade.command import hint_text
    return Text(hint_text(find(name), number))


def keep(name: str, text: str) -> Path:
    """Write an answer to the course's exercises/e05.py; all of it, or nothing."""
    path = learner_folder() / f"{find(name).name}.py"
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
    return path


def load(shell) -> None:
    """Give the shell the cell magic %%exercise."""
    def exercise(line, cell=None):
        """Run the cell, and keep it as the answer to an exercise, which check("e05") grades.

        It is kept as it is, right or wrong: what stands in the cell is what check() grades.
        """
        from IPython.core.error import UsageError
        if cell is None or len(line.split()) != 1:
            raise UsageError(USAGE)
        try:
            task = find(line.strip())
        except ValueError as e:
            raise UsageError(str(e)) from None
        keep(task.name, cell)
        place = shell.compile.cache(cell, shell.execution_count)       # so that errors show the cell's lines
        exec(compile(cell, place, "exec", dont_inherit=True), shell.user_ns)
    shell.register_magic_function(exercise, "line_cell", "exercise")
