//! System calls that the confinement refuses: SIGSYS becomes EPERM, and a note of the call's number.

use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 16;
/// Higher numbers share the last place.
const LAST: usize = WORDS * 64 - 1;

/// A bit for each call that was refused.
static REFUSED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// From now on SIGSYS refuses one call and does no more.
pub fn catch() {
    // SAFETY: an all-zero sigaction is valid. The handler only uses atomics and the frame that it is given; it has the
    // form that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = refuse as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART | libc::SA_NODEFER;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut());
    }
}

/// Calls that were refused since the last time, by number.
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

/// What siginfo_t has for SIGSYS.
#[repr(C)]
struct Sigsys {
    signal: libc::c_int,
    error: libc::c_int,
    code: libc::c_int,
    address: *const libc::c_void,
    call: libc::c_int,
    machine: libc::c_uint,
}

/// `si_code` of a call that a filter traps. Anybody may send the signal otherwise.
const SYS_SECCOMP: libc::c_int = 1;

extern "C" fn refuse(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over a siginfo_t, which begins as `Sigsys` says for this signal.
    let info = unsafe { &*info.cast::<Sigsys>() };
    if info.code != SYS_SECCOMP {
        return;
    }
    let call = usize::try_from(info.call).map_or(LAST, |call| call.min(LAST));
    REFUSED[call / 64].fetch_or(1 << (call % 64), Ordering::Relaxed);
    // SAFETY: the kernel hands over the registers that the thread goes on with, as a ucontext_t.
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
