"""A text as a script on real processes, from a notebook: with the very msrun of the shell, which is started as a process."""
MOST, TIMEOUT = 64, 60.0


class JobError(RuntimeError):
    pass


def attempt_script(text, n, timeout, env):
    raise JobError("not yet")
