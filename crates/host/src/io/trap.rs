//! Handles system calls that the confinement refuses. The signal SIGSYS becomes the error EPERM,
//! and the number of the call is recorded.

use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 16;
/// The last bit. All numbers above it share it.
const LAST: usize = WORDS * 64 - 1;

/// The refused calls: a bit for each number of a system call.
static REFUSED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// Installs the handler of SIGSYS, which makes a refused call return EPERM.
pub fn catch() {
    // SAFETY: an all-zero sigaction is valid. The handler has the signature that SA_SIGINFO
    // demands. It is async-signal-safe: it uses only atomics and the frame that the kernel passes.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = refuse as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART | libc::SA_NODEFER;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut());
    }
}

/// Returns the numbers of the calls that were refused since the last time.
pub fn take_refused() -> Vec<usize> {
    let mut calls = Vec::new();
    for (index, word) in REFUSED.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            calls.push(index * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
    calls
}

/// The start of siginfo_t as the kernel fills it for SIGSYS.
#[repr(C)]
struct Sigsys {
    signal: libc::c_int,
    error: libc::c_int,
    code: libc::c_int,
    address: *const libc::c_void,
    call: libc::c_int,
    machine: libc::c_uint,
}

/// The `si_code` of a call that a seccomp filter traps. Other codes mean that somebody sent the
/// signal.
const SYS_SECCOMP: libc::c_int = 1;

extern "C" fn refuse(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo_t, and for this signal it starts with the fields of
    // `Sigsys`.
    let info = unsafe { &*info.cast::<Sigsys>() };
    if info.code != SYS_SECCOMP {
        return;
    }
    let call = usize::try_from(info.call).map_or(LAST, |call| call.min(LAST));
    REFUSED[call / 64].fetch_or(1 << (call % 64), Ordering::Relaxed);
    // SAFETY: with SA_SIGINFO, the kernel passes a valid ucontext_t with the registers to restore.
    // Nothing else uses it while the handler runs.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    set_result(context);
}

#[cfg(target_arch = "x86_64")]
fn set_result(context: &mut libc::ucontext_t) {
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = -i64::from(libc::EPERM);
}

#[cfg(target_arch = "aarch64")]
fn set_result(context: &mut libc::ucontext_t) {
    context.uc_mcontext.regs[0] = (-i64::from(libc::EPERM)) as u64;
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn set_result(_: &mut libc::ucontext_t) {}
