//! The queue of tasks of an established IKE SA.

use std::time::Instant;

use super::context::Context;
use super::established::Established;
use super::task::{QueuedTask, Task};

impl Established {
    /// Puts a task in the queue. Returns false if the queue takes no more requests for children. An equal task is not
    /// queued twice.
    pub(crate) fn queue(&mut self, ctx: &Context<'_>, task: Task) -> bool {
        self.queue_later(ctx, task, ctx.now)
    }

    pub(crate) fn queue_later(
        &mut self,
        ctx: &Context<'_>,
        task: Task,
        not_before: Instant,
    ) -> bool {
        let mut queued = self.tasks.iter_mut();
        if let Some(equal) = queued.find(|queued| queued.task.covers(&task)) {
            // A task for a child keeps its pause: the peer has asked for it.
            if let Task::DeleteIke(_) = task {
                equal.not_before = equal.not_before.min(not_before);
            }
            return true;
        }
        // The SAs that exist bound the number of all other tasks.
        let adds = matches!(task, Task::CreateChild(_));
        if adds && self.tasks.len() >= ctx.config.limits.queued_tasks_max {
            return false;
        }
        let queued = QueuedTask { task, not_before };
        if let Task::DeleteIke(_) = queued.task {
            self.tasks.push_front(queued);
        } else {
            self.tasks.push_back(queued);
        }
        true
    }

    /// Takes the next task that is due.
    pub(crate) fn take_due_task(&mut self, now: Instant) -> Option<Task> {
        let index = self
            .tasks
            .iter()
            .position(|queued| queued.not_before <= now)?;
        let due = self.tasks.remove(index).map(|queued| queued.task);
        if self.tasks.is_empty() {
            self.tasks.shrink_to_fit();
        }
        due
    }
}
