//! Signals that mean nothing to the gateway.

/// Ignores every signal that would end or stop the process and that says nothing about a fault in it. Those that
/// the daemon watches are left to it; so are SIGTERM, SIGINT and SIGQUIT, which always end something.
///
/// Writing brings some of them: SIGPIPE (Rust ignores it already), SIGXFSZ at a limit on the size of files,
/// SIGTTOU on a terminal in whose background the gateway runs. Ignored, the write fails or goes through.
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
        // SAFETY: SIG_IGN runs no code of ours. It fails for no signal of this list.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
