//! Ignores the signals that have no meaning for the gateway. The daemon handles the others.

/// Ignores every signal that would end or stop the process and that reports no fault in it. Two
/// groups are not touched: those that the daemon watches, and SIGTERM, SIGINT and SIGQUIT, which
/// always end the process.
///
/// A write can raise some of these signals. SIGPIPE is one, which Rust ignores already. SIGXFSZ
/// comes at a limit on file sizes, and SIGTTOU when the gateway runs in the background of a
/// terminal. When they are ignored, the write fails or succeeds.
pub fn ignore_meaningless() {
    let named = [
        libc::SIGHUP,
        libc::SIGPIPE,
        libc::SIGALRM,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGSTKFLT,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGXCPU,
        libc::SIGXFSZ,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGIO,
        libc::SIGPWR,
    ];
    for signal in named.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
        // SAFETY: SIG_IGN runs no code of ours, and the call takes no pointers. Every signal of
        // this list may be ignored.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
