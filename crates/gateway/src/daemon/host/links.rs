//! Opens the links whose ESP goes past the kernel's stack, and opens them again when they are made anew.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::config::GatewayConfig;
use crate::failure::Failure;
use crate::io::xdp::{MTU_MAX, XdpMode, XdpProgram};
use crate::net::{Net, XdpAttachment, detach_leftover, link_facts};
use crate::status::{LinkStats, Named};
use crate::worker::{LinkQueue, Worker, WorkerSockets};

/// Most attempts to open a link that was made anew.
const ATTEMPTS_MAX: u32 = 5;
/// The pause after the first attempt. Each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(500);

/// The links, with their programs. These stay on their links as long as this is kept.
#[derive(Debug)]
pub struct OpenedLinks {
    links: Vec<OpenedLink>,
    /// The name of the TUN device: no other gateway can have it.
    owner: String,
}

#[derive(Debug)]
struct OpenedLink {
    name: String,
    program: XdpProgram,
    /// The number of workers that have a queue.
    queues: u32,
    /// The index of the link. `None` means that the link is gone, or made anew and not opened yet.
    index: Option<u32>,
    /// The attachment to a link that was made anew.
    attachment: Option<XdpAttachment>,
    attempts: Attempts,
}

/// The attempts to open a link that was made anew.
#[derive(Debug, Default)]
struct Attempts {
    /// The index of that link.
    link: u32,
    failed: u32,
    next: Option<Instant>,
}

impl Attempts {
    /// Tells whether an attempt is due.
    fn is_due(&mut self, link: u32, now: Instant) -> bool {
        if self.link != link {
            *self = Self {
                link,
                ..Self::default()
            };
        }
        self.failed == 0 || self.next.is_some_and(|next| next <= now)
    }

    /// Notes a failure, and tells whether it was the last.
    fn fail(&mut self, is_lasting: bool, now: Instant) -> bool {
        self.failed += 1;
        let goes_on = !is_lasting && self.failed < ATTEMPTS_MAX;
        self.next = goes_on.then(|| now + PAUSE * 2_u32.pow(self.failed - 1));
        !goes_on
    }
}

impl OpenedLinks {
    /// Gives each worker a queue of each link, if the link has so many queues.
    pub async fn open(
        config: &GatewayConfig,
        net: &Net,
        workers: &mut [WorkerSockets],
    ) -> Result<Self, Failure> {
        let owner = config.tun.clone();
        let mut links = Vec::with_capacity(config.xdp.len());
        for name in &config.xdp {
            let no_link = |error| failure(name, &io::Error::other(error));
            let link = net.link_index(name).await.map_err(no_link)?;
            let opened = open_one(name, link, &owner, workers).await;
            links.push(opened.map_err(|error| failure(name, &error))?);
        }
        Ok(Self { links, owner })
    }

    /// Opens the links that were made anew, and gives the workers their queues.
    pub async fn follow(&mut self, net: &Net, workers: &[Worker], now: Instant) {
        for link in &mut self.links {
            // The next announcement has us look again at a link whose state cannot be read now.
            if let Ok(state) = net.link_state(&link.name).await {
                link.follow(state, &self.owner, workers, now);
            }
        }
    }

    /// Returns the time of the next attempt to open a link.
    pub fn due(&self) -> Option<Instant> {
        self.links
            .iter()
            .filter_map(|link| link.attempts.next)
            .min()
    }

    pub fn report(&self) -> Named<LinkStats> {
        let links = self.links.iter();
        Named(
            links
                .map(|link| (link.name.clone(), link.report()))
                .collect(),
        )
    }

    /// Gives the links back.
    pub fn close(&mut self) {
        self.links.clear();
    }
}

impl OpenedLink {
    /// `state` is the index of the link of that name, and whether it is up.
    fn follow(
        &mut self,
        state: Option<(u32, bool)>,
        owner: &str,
        workers: &[Worker],
        now: Instant,
    ) {
        let Some((index, is_up)) = state else {
            self.leave(workers);
            self.attempts = Attempts::default();
            return;
        };
        if self.index == Some(index) {
            return;
        }
        self.leave(workers);
        // The kernel announces it when the link goes up.
        if !is_up || !self.attempts.is_due(index, now) {
            return;
        }
        let link = &self.name;
        match self.open_again(index, owner) {
            Ok((queues, attachment, mode)) => {
                tracing::info!(
                    link,
                    queues = queues.len(),
                    in_driver = mode == XdpMode::Driver,
                    "the link was made anew, and ESP without UDP goes past the kernel's stack again"
                );
                self.program.mode = mode;
                self.index = Some(index);
                self.attachment = Some(attachment);
                self.attempts = Attempts::default();
                for (worker, queue) in workers.iter().zip(queues) {
                    worker.give_link(queue);
                }
            }
            Err(error) => {
                if self.attempts.fail(is_lasting(&error), now) {
                    tracing::warn!(
                        link,
                        "the link was made anew, and its ESP goes through the kernel's stack until it is made \
                         anew again or the gateway starts again: {error}"
                    );
                }
            }
        }
    }

    /// Forgets a link that is gone or has another name. The workers free its memory, which the next one needs.
    fn leave(&mut self, workers: &[Worker]) {
        if self.index.take().is_some() {
            workers
                .iter()
                .for_each(|worker| worker.lose_link(&self.name));
        }
        self.attachment = None;
        self.program.detach();
    }

    /// Opens as many queues as there were at the start. The program is attached last: it finds every socket in its
    /// map, and none of the former link.
    fn open_again(
        &self,
        index: u32,
        owner: &str,
    ) -> io::Result<(Vec<LinkQueue>, XdpAttachment, XdpMode)> {
        let mtu = mtu_of(index)?;
        let mut queues = Vec::with_capacity(self.queues as usize);
        for number in 0..self.queues {
            let opened = LinkQueue::open(&self.name, index, number, mtu);
            let opened = opened.map_err(|error| match error.raw_os_error() {
                Some(libc::EINVAL) if number > 0 => io::Error::other(format!(
                    "it has {number} queues, and {} before",
                    self.queues
                )),
                _ => error,
            })?;
            self.program.lead(number, opened.queue.as_fd())?;
            queues.push(opened);
        }
        let attach = |mode| XdpAttachment::new(index, &self.program, mode, owner);
        let (attachment, mode) = XdpMode::attach(attach)?;
        Ok((queues, attachment, mode))
    }

    fn report(&self) -> LinkStats {
        LinkStats {
            attached: self.index.is_some(),
            queues: self.queues,
            in_driver: self.program.mode == XdpMode::Driver,
        }
    }
}

/// Tells whether another attempt would fail as well. The kernel frees the locked memory of the former queues a moment
/// late.
fn is_lasting(error: &io::Error) -> bool {
    let passing = [libc::EBUSY, libc::ENETDOWN, libc::ENODEV, libc::ENOBUFS];
    let number = error.raw_os_error();
    !number.is_some_and(|number| passing.contains(&number))
}

async fn open_one(
    name: &str,
    link: u32,
    owner: &str,
    workers: &mut [WorkerSockets],
) -> io::Result<OpenedLink> {
    let mtu = mtu_of(link)?;
    if detach_leftover(link, owner)? {
        tracing::info!(
            link = name,
            "the program of an earlier gateway was left on the link"
        );
    }
    let count = workers.len() as u32;
    let program = once_free(|| XdpProgram::attach(link, count)).await?;
    let mut queues = 0;
    for worker in workers {
        match once_free(|| LinkQueue::open(name, link, queues, mtu)).await {
            Ok(opened) => {
                program.lead(queues, opened.queue.as_fd())?;
                worker.links.push(opened);
                queues += 1;
            }
            // The link has no more queues. The remaining workers send through the stack.
            Err(error) if queues > 0 && error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
    }
    tracing::info!(
        link = name,
        queues,
        in_driver = program.mode == XdpMode::Driver,
        "ESP without UDP goes past the kernel's stack"
    );
    Ok(OpenedLink {
        name: name.to_owned(),
        program,
        queues,
        index: Some(link),
        attachment: None,
        attempts: Attempts::default(),
    })
}

/// Returns the MTU of a link that can be opened.
fn mtu_of(link: u32) -> io::Result<usize> {
    let mtu = link_facts(link)?.mtu;
    if mtu > MTU_MAX {
        let what = format!("its MTU is {mtu}, and {MTU_MAX} is the most");
        return Err(io::Error::other(what));
    }
    Ok(mtu)
}

/// Tries again for a while if a link is in use, because a gateway that has just ended leaves its links a moment later.
async fn once_free<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    const PAUSE: Duration = Duration::from_millis(50);
    for _ in 0..40 {
        match open() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                tokio::time::sleep(PAUSE).await;
            }
            other => return other,
        }
    }
    open()
}

fn failure(name: &str, error: &io::Error) -> Failure {
    let what = format!("ESP cannot go past the kernel's stack on {name}: {error}");
    let (failure, help) = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => (
            Failure::forbidden(what),
            "`xdp` needs CAP_BPF beside CAP_NET_ADMIN and CAP_NET_RAW, and not inside a user namespace; or leave the link out of it",
        ),
        Some(libc::EBUSY | libc::EEXIST) => (
            Failure::runtime(what),
            "another program has the link, or its queue: `ip link show` names it; or leave the link out of `xdp`",
        ),
        _ => (
            Failure::runtime(what),
            "correct `xdp` in the gateway section, or leave the link out of it",
        ),
    };
    failure.help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_end_and_another_link_has_its_own() {
        let (mut attempts, mut now) = (Attempts::default(), Instant::now());
        let begun = now;
        for failed in 1..=ATTEMPTS_MAX {
            assert!(attempts.is_due(7, now), "{failed}");
            assert_eq!(attempts.fail(false, now), failed == ATTEMPTS_MAX);
            assert!(!attempts.is_due(7, now), "not at once");
            now = attempts.next.unwrap_or(now);
        }
        assert_eq!(now - begun, PAUSE * 15);
        assert_eq!(attempts.next, None);
        assert!(!attempts.is_due(7, now + PAUSE * 1000));
        assert!(attempts.is_due(8, now));
    }

    #[test]
    fn what_lasts_is_not_tried_again() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        assert!(is_lasting(&refused) && is_lasting(&io::Error::other("")));
        assert!(!is_lasting(&io::Error::from_raw_os_error(libc::EBUSY)));
        assert!(attempts.is_due(7, now) && attempts.fail(true, now));
        assert!(!attempts.is_due(7, now + PAUSE * 1000));
    }
}
