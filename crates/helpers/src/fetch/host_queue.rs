//! Requests that wait for a worker, in turn by host: a host that does not answer holds up no other.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Requests that wait.
const WAITING_MAX: usize = 1024;
/// Those of one host.
const WAITING_OF_HOST_MAX: usize = 256;
/// Requests that are under way at a time.
const RUNNING_MAX: usize = 8;
/// Those to one host, and those to slow hosts together.
const RUNNING_OF_HOST_MAX: usize = 4;
const RUNNING_OF_SLOW_MAX: usize = 4;
/// The time that a request may wait.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// The time for which a host that has not answered counts as slow. It doubles with each time that it does not.
const SLOW_MIN: Duration = Duration::from_secs(60);
const SLOW_MAX: Duration = Duration::from_secs(960);
/// Slow hosts that are remembered.
const HOSTS_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct HostQueue<T> {
    waiting: VecDeque<Waiting<T>>,
    /// Requests under way, by their host.
    running: HashMap<String, usize>,
    slow: HashMap<String, Slow>,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    host: String,
    since: Instant,
}

#[derive(Debug)]
struct Slow {
    until: Instant,
    pause: Duration,
}

impl<T> Default for HostQueue<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            running: HashMap::new(),
            slow: HashMap::new(),
        }
    }
}

impl<T> HostQueue<T> {
    /// Returns the request if there is no place for it.
    pub(super) fn push(&mut self, host: &str, item: T, now: Instant) -> Result<(), T> {
        let of_host = self.waiting.iter().filter(|one| one.host == host).count();
        if self.waiting.len() >= WAITING_MAX || of_host >= WAITING_OF_HOST_MAX {
            return Err(item);
        }
        self.waiting.push_back(Waiting {
            item,
            host: host.to_owned(),
            since: now,
        });
        Ok(())
    }

    /// Takes the next request whose turn it is, and its host. Call [`Self::end`] when it has ended.
    pub(super) fn next(&mut self, now: Instant) -> Option<(String, T)> {
        if self.running() >= RUNNING_MAX {
            return None;
        }
        let of_slow: usize = (self.running.iter())
            .filter(|(host, _)| self.is_slow(host, now))
            .map(|(_, count)| count)
            .sum();
        let of = |host: &str| self.running.get(host).copied().unwrap_or_default();
        let quick =
            |one: &Waiting<T>| !self.is_slow(&one.host, now) && of(&one.host) < RUNNING_OF_HOST_MAX;
        let slow = |one: &Waiting<T>| {
            self.is_slow(&one.host, now) && of(&one.host) == 0 && of_slow < RUNNING_OF_SLOW_MAX
        };
        let at = self.waiting.iter().position(quick);
        let at = at.or_else(|| self.waiting.iter().position(slow))?;
        let Waiting { item, host, .. } = self.waiting.remove(at)?;
        *self.running.entry(host.clone()).or_default() += 1;
        Some((host, item))
    }

    /// A request has ended. `timed_out`: its host did not answer in time.
    pub(super) fn end(&mut self, host: &str, timed_out: bool, now: Instant) {
        if let Some(count) = self.running.get_mut(host) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(host);
            }
        }
        if !timed_out {
            self.slow.remove(host);
            return;
        }
        if self.slow.len() >= HOSTS_MAX {
            self.slow.retain(|_, slow| slow.until > now);
        }
        let has_room = self.slow.len() < HOSTS_MAX;
        match self.slow.get_mut(host) {
            // Requests that began together tell the same.
            Some(slow) if slow.until > now + slow.pause / 2 => {}
            Some(slow) => {
                slow.pause = (slow.pause * 2).min(SLOW_MAX);
                slow.until = now + slow.pause;
            }
            None if has_room => {
                let (until, pause) = (now + SLOW_MIN, SLOW_MIN);
                self.slow.insert(host.to_owned(), Slow { until, pause });
            }
            None => {}
        }
    }

    /// Takes the requests that have waited too long.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<T> {
        let is_late = |one: &Waiting<T>| one.since + WAIT_MAX <= now;
        let late = self.waiting.iter().take_while(|one| is_late(one)).count();
        self.waiting.drain(..late).map(|one| one.item).collect()
    }

    /// Takes all requests that wait. Those under way have come to nothing.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        self.running.clear();
        self.waiting.drain(..).map(|one| one.item).collect()
    }

    fn running(&self) -> usize {
        self.running.values().sum()
    }

    fn is_slow(&self, host: &str, now: Instant) -> bool {
        self.slow.get(host).is_some_and(|slow| slow.until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hosts of the requests that are begun now.
    fn begun(queue: &mut HostQueue<usize>, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| queue.next(now).map(|(host, _)| host)).collect()
    }

    #[test]
    fn a_host_that_does_not_answer_holds_up_no_other() {
        let (mut queue, now) = (HostQueue::default(), Instant::now());
        for number in 0..59 {
            queue.push("slow", number, now).unwrap();
        }
        assert_eq!(begun(&mut queue, now), ["slow"; RUNNING_OF_HOST_MAX]);
        queue.push("quick", 0, now).unwrap();
        assert_eq!(begun(&mut queue, now), ["quick"]);
        queue.end("quick", false, now);
        // From now on it has one worker, and others go first.
        (0..RUNNING_OF_HOST_MAX).for_each(|_| queue.end("slow", true, now));
        queue.push("quick", 1, now).unwrap();
        assert_eq!(begun(&mut queue, now), ["quick", "slow"]);
        // When it answers, it is as any other.
        queue.end("slow", false, now);
        assert_eq!(begun(&mut queue, now), ["slow"; RUNNING_OF_HOST_MAX]);
    }

    #[test]
    fn slow_hosts_together_leave_workers_to_others() {
        let (mut queue, now) = (HostQueue::default(), Instant::now());
        let hosts: Vec<String> = (0..20).map(|number| format!("slow{number}")).collect();
        for host in &hosts {
            queue.end(host, true, now);
            queue.push(host, 0, now).unwrap();
        }
        assert_eq!(begun(&mut queue, now).len(), RUNNING_OF_SLOW_MAX);
        queue.push("quick", 0, now).unwrap();
        assert_eq!(begun(&mut queue, now), ["quick"]);
    }

    #[test]
    fn a_host_is_slow_for_longer_each_time() {
        let (mut queue, mut now) = (HostQueue::<usize>::default(), Instant::now());
        for expected in [60, 120, 240, 480, 960, 960] {
            queue.end("slow", true, now);
            queue.end("slow", true, now);
            let last = now + Duration::from_secs(expected) - Duration::from_millis(1);
            assert!(queue.is_slow("slow", last), "{expected}");
            now += Duration::from_secs(expected);
            assert!(!queue.is_slow("slow", now), "{expected}");
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let (mut queue, now) = (HostQueue::default(), Instant::now());
        let taken = (0..2000).filter(|number| queue.push("one", *number, now).is_ok());
        assert_eq!(taken.count(), WAITING_OF_HOST_MAX);
        let later = now + Duration::from_secs(5);
        for number in 0..2000 {
            let _ = queue.push(&format!("other{}", number % 50), number, later);
        }
        assert_eq!(queue.waiting.len(), WAITING_MAX);
        assert!(queue.take_late(now + WAIT_MAX / 2).is_empty());
        assert_eq!(queue.take_late(now + WAIT_MAX).len(), WAITING_OF_HOST_MAX);
        assert_eq!(queue.take_all().len(), WAITING_MAX - WAITING_OF_HOST_MAX);
    }

    #[test]
    fn slow_hosts_that_are_remembered_are_bounded() {
        let (mut queue, now) = (HostQueue::<usize>::default(), Instant::now());
        for number in 0..3 * HOSTS_MAX {
            queue.end(&format!("slow{number}"), true, now);
        }
        assert_eq!(queue.slow.len(), HOSTS_MAX);
    }
}
