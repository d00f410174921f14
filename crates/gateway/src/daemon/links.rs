//! Opens the links whose ESP goes past the kernel's stack.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::failure::Failure;
use crate::io::xdp::{MTU_MAX, XdpMode, XdpProgram};
use crate::net::{Net, link_facts};
use crate::worker::{LinkQueue, WorkerSockets};

/// Gives each worker a queue of each link, if the link has so many queues. The programs stay on their links as long as
/// they are kept.
pub async fn open(
    names: &[String],
    net: &Net,
    workers: &mut [WorkerSockets],
) -> Result<Vec<XdpProgram>, Failure> {
    let mut programs = Vec::with_capacity(names.len());
    for name in names {
        let no_link = |error| failure(name, &io::Error::other(error));
        let link = net.link_index(name).await.map_err(no_link)?;
        let program = open_one(name, link, workers).await;
        programs.push(program.map_err(|error| failure(name, &error))?);
    }
    Ok(programs)
}

async fn open_one(name: &str, link: u32, workers: &mut [WorkerSockets]) -> io::Result<XdpProgram> {
    let facts = link_facts(link)?;
    if facts.mtu > MTU_MAX {
        let what = format!("its MTU is {}, and {MTU_MAX} is the most", facts.mtu);
        return Err(io::Error::other(what));
    }
    let count = workers.len() as u32;
    let program = once_free(|| XdpProgram::attach(link, count)).await?;
    let mut queues = 0;
    for worker in workers {
        match once_free(|| LinkQueue::open(name, link, queues, facts.mtu)).await {
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
    let is_generic = program.mode == XdpMode::Generic;
    tracing::info!(
        link = name,
        queues,
        in_driver = !is_generic,
        "ESP without UDP goes past the kernel's stack"
    );
    Ok(program)
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
