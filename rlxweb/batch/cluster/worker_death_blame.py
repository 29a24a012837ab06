"""Decision whether a recording is to blame for the workers that ended while they worked
on it.

One that workers end over time and again is, as long as they do not end over others as
well: where whoever rents out the machines takes them away, a long recording may lose
many workers and none of them by its own fault.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlxweb.batch.cluster.task_packing import PendingRecording

# Workers that may end over a recording; and those that may where they end over other
# recordings just as often.
MAX_DEATHS = 4
MAX_DEATHS_AMONG_OTHERS = 16


class WorkerDeathLog:
    """Log of the workers that ended during a task, and of their tasks."""

    def __init__(self) -> None:
        self._tasks: list[Sequence[PendingRecording]] = []

    def record_death(
        self, task: Sequence[PendingRecording], address: str
    ) -> list[PendingRecording]:
        """Record that a worker ended during a task; return the recordings of the task
        that are to blame.
        """
        self._tasks.append(task)
        for recording in task:
            recording.ended_workers.append(address)
        return [recording for recording in task if self._is_to_blame(recording)]

    def _is_to_blame(self, recording: PendingRecording) -> bool:
        n = len(recording.ended_workers)
        if n < MAX_DEATHS:
            return False
        first = next(
            index for index, task in enumerate(self._tasks) if recording in task
        )
        over_others = sum(recording not in task for task in self._tasks[first:])
        return n > over_others or n >= MAX_DEATHS_AMONG_OTHERS
