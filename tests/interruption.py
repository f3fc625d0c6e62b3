"""A listener that breaks a stage off after some images: what a signal does, at an exact place."""


class Interrupted(Exception):
    pass


class StopAfter:
    def __init__(self, images: int):
        self.left = images

    def start(self, name, total, unit, done):
        def advance(n):
            self.left -= n
            if self.left <= 0:
                raise Interrupted

        return advance

    def finish(self, name, completed):
        pass
