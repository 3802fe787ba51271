"""Training of several forests at the same time, in the same threads."""

import threading
import time
from bisect import insort
from collections import defaultdict
from itertools import count

from sklearn import config_context, get_config

from .threads import local_threads, thread_count

INTERRUPTIBLE = 0.1  # seconds of a wait for a thread, after which an interrupt is noticed


class SharedThreads:
    """A number of threads for the members of several calls of `in_parallel`, see `together`.

    Of the members that wait, those of the call with the fewest begin first, because they take
    longest.
    """

    def __init__(self, n_threads):
        self.n_threads = self.n_free = n_threads
        self.waiting, self.numbers = [], count()
        self.condition = threading.Condition()
        self.stops, self.is_ended = [], False
        self.spent = defaultdict(float)  # seconds of members, by the thread of the call

    def taking_turns(self, function, n_members, control):
        """Wrap the function of a call, so that it waits for its turn."""
        caller = threading.get_ident()
        with self.condition:
            self.stops.append(control.stop)
            control.stop[0] |= self.is_ended

        def called(member, control):
            place = n_members, next(self.numbers)
            with self.condition:
                insort(self.waiting, place)
                self.condition.wait_for(
                    lambda: self.is_ended or (self.n_free > 0 and self.waiting[0] == place)
                )
                self.waiting.remove(place)
                self.n_free -= 1
                self.condition.notify_all()
            start = time.perf_counter()
            try:
                return function(member, control)
            finally:
                with self.condition:
                    self.spent[caller] += time.perf_counter() - start
                    self.n_free += 1
                    self.condition.notify_all()

        return called

    def seconds(self):
        """Return the time of all members of this thread's calls, divided by the threads."""
        return self.spent[threading.get_ident()] / self.n_threads

    def end(self):
        """End the training of all calls."""
        with self.condition:
            self.is_ended = True
            for stop in self.stops:
                stop[0] = 1
            self.condition.notify_all()


def together(functions, n_jobs):
    """Call each ``function(shared)`` in a thread of its own, which calls `in_parallel`.

    `shared` are `SharedThreads`: all members of all calls use `n_jobs` threads. The first error
    ends the other calls.
    """
    shared, errors, config = SharedThreads(thread_count(n_jobs)), [], get_config()

    def called(function):
        try:
            with config_context(**config), local_threads(shared.n_threads):
                function(shared)
        except BaseException as error:
            errors.append(error)
            shared.end()

    threads = [threading.Thread(target=called, args=(function,)) for function in functions]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(INTERRUPTIBLE)
    finally:
        shared.end()  # after an interrupt, the threads still work
        for thread in threads:
            if thread.is_alive():  # it may not have been started
                thread.join()
    if errors:
        raise errors[0]
