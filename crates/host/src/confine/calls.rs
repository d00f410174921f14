//! Restricts, with seccomp, the system calls of the process.
//!
//! There are three answers. A call that the running gateway uses is permitted. A call that no gateway needs and an
//! attacker would want kills the process. Any other call fails with EPERM and is logged once ([`trap`]). So if a new C
//! library or kernel uses a new call, one function may fail but the tunnels survive.
//!
//! All threads share one list. They share their memory, so whoever controls one thread controls
//! them all.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Is,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};

use crate::io::trap;
use crate::io::xdp::MAP_UPDATE;

type CallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that are permitted with any arguments.
const USED: &[i64] = &[
    // Packets.
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    // Descriptors. Landlock restricts the files that they can refer to.
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_getcwd,
    libc::SYS_unlinkat,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    // Sockets.
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads, time and signals.
    libc::SYS_futex,
    libc::SYS_membarrier,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // The filter `absent` answers this call first.
    libc::SYS_clone3,
    // The process itself.
    libc::SYS_getrandom,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    // Calls that give up more rights.
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
];

/// Older forms of these calls. C libraries still use them where they exist.
#[cfg(target_arch = "x86_64")]
const USED_OLD: &[i64] = &[
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_unlink,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const USED_OLD: &[i64] = &[];

/// Calls that lead out of the process or change the machine. Neither the gateway nor a library
/// makes them on its own.
const DEADLY: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_personality,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
];

#[cfg(target_arch = "x86_64")]
const DEADLY_OLD: &[i64] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const DEADLY_OLD: &[i64] = &[];

/// Permitted commands of fcntl, besides F_SETFL: copies of descriptors, and their flags. F_SETOWN and F_SETSIG would make
/// the kernel send signals to other processes.
const COMMANDS: [u64; 4] = [
    libc::F_DUPFD_CLOEXEC as u64,
    libc::F_GETFD as u64,
    libc::F_SETFD as u64,
    libc::F_GETFL as u64,
];

/// Permitted requests of ioctl: for TUN devices, names and numbers of interfaces, modes of
/// descriptors, and terminals. FIOASYNC, FIOSETOWN and SIOCSPGRP are not among them: see `COMMANDS`.
const REQUESTS: [libc::Ioctl; 11] = [
    libc::TUNSETIFF,
    libc::TUNGETIFF,
    libc::TUNSETPERSIST,
    libc::TUNSETOFFLOAD,
    libc::TUNSETVNETHDRSZ,
    libc::SIOCGIFNAME,
    libc::SIOCGIFINDEX,
    libc::FIONBIO,
    libc::FIOCLEX,
    libc::TCGETS,
    libc::TIOCGWINSZ,
];

/// Permitted options of prctl: names of threads, names of memory areas for the C library
/// (PR_SET_VMA), and giving up rights.
const OPTIONS: [u64; 4] = [
    libc::PR_SET_NAME as u64,
    libc::PR_GET_NAME as u64,
    libc::PR_SET_VMA as u64,
    libc::PR_SET_NO_NEW_PRIVS as u64,
];

/// Flags of clone. A thread of this process has all flags of THREAD and none of NAMESPACES.
const THREAD: u64 = (libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// The bits of a socket's type, without SOCK_NONBLOCK and SOCK_CLOEXEC.
const TYPE: u64 = 0xf;

/// Installs the filters in every thread of the process. They cannot be removed. `xdp` means that links were opened past
/// the kernel's stack, so that they can be opened again.
pub(super) fn enter(xdp: bool) -> Result<(), Error> {
    // The signal handler is written for these architectures only.
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        let machine = std::env::consts::ARCH.to_owned();
        return Err(BackendError::InvalidTargetArch(machine).into());
    }
    trap::catch();
    // If several filters match, the strictest answer applies. After the last filter, no other can
    // be installed.
    apply_filter_all_threads(&deadly(xdp)?)?;
    apply_filter_all_threads(&absent()?)?;
    apply_filter_all_threads(&allowed(xdp)?)
}

fn allowed(xdp: bool) -> Result<BpfProgram, BackendError> {
    let mut rules = whatever(&[USED, USED_OLD]);
    let mut kinds = sockets()?;
    if xdp {
        kinds.push(rule([arg(0, Is::Eq, libc::AF_XDP as u64)?])?);
        // It changes maps of which the process has a descriptor: that is one map, which holds sockets.
        rules.insert(libc::SYS_bpf, any_of(0, &[MAP_UPDATE])?);
    }
    rules.insert(libc::SYS_socket, kinds);
    let not_executable = [arg(2, Is::MaskedEq(libc::PROT_EXEC as u64), 0)?];
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![rule(not_executable.clone())?]);
    }
    rules.insert(libc::SYS_fcntl, descriptors()?);
    rules.insert(libc::SYS_ioctl, any_of(1, &REQUESTS)?);
    rules.insert(libc::SYS_prctl, any_of(0, &OPTIONS)?);
    let thread = arg(0, Is::MaskedEq(THREAD | NAMESPACES), THREAD)?;
    rules.insert(libc::SYS_clone, vec![rule([thread])?]);
    // abort() needs tgkill. It ends the process after a panic that cannot be caught.
    rules.insert(libc::SYS_tgkill, any_of(0, &[std::process::id().into()])?);
    // A thread may bind itself to processors, and no other process.
    rules.insert(libc::SYS_sched_setaffinity, any_of(0, &[0])?);
    // Permit reading a limit of this process, but not setting one.
    let own = arg(0, Is::Eq, 0)?;
    let no_new_limit = SeccompCondition::new(2, Width::Qword, Is::Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![rule([own, no_new_limit])?]);
    program(rules, SeccompAction::Trap, SeccompAction::Allow)
}

fn deadly(xdp: bool) -> Result<BpfProgram, BackendError> {
    let mut rules = whatever(&[DEADLY, DEADLY_OLD]);
    if xdp {
        let other = arg(0, Is::Ne, MAP_UPDATE)?;
        rules.insert(libc::SYS_bpf, vec![rule([other])?]);
    }
    // Without CLONE_THREAD, clone would start another process.
    let process = arg(0, Is::MaskedEq(libc::CLONE_THREAD as u64), 0)?;
    rules.insert(libc::SYS_clone, vec![rule([process])?]);
    program(rules, SeccompAction::Allow, SeccompAction::KillProcess)
}

/// Makes clone3 fail with ENOSYS, so that the C library starts threads by clone. A filter cannot
/// see the flags of clone3. A trap would kill the process, because the C library blocks all signals
/// during the call.
fn absent() -> Result<BpfProgram, BackendError> {
    let rules = whatever(&[&[libc::SYS_clone3]]);
    program(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
    )
}

/// Permits these calls with any arguments.
fn whatever(calls: &[&[i64]]) -> CallRules {
    let calls = calls.iter().copied().flatten();
    calls.map(|call| (*call, Vec::new())).collect()
}

/// Permits the commands of fcntl that the gateway uses. Modes of descriptors may be set, but for O_ASYNC.
fn descriptors() -> Result<Vec<SeccompRule>, BackendError> {
    let mut rules = any_of(1, &COMMANDS)?;
    let set_mode = arg(1, Is::Eq, libc::F_SETFL as u64)?;
    let no_signals = arg(2, Is::MaskedEq(libc::O_ASYNC as u64), 0)?;
    rules.push(rule([set_mode, no_signals])?);
    Ok(rules)
}

/// Permits sockets for datagrams, raw packets, network settings and interface names. TCP is not
/// permitted.
fn sockets() -> Result<Vec<SeccompRule>, BackendError> {
    let mut rules = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
            let family = arg(0, Is::Eq, family as u64)?;
            rules.push(rule([family, arg(1, Is::MaskedEq(TYPE), kind as u64)?])?);
        }
    }
    // sd_notify needs these sockets, and the C library uses them to look up an interface's name.
    let family = arg(0, Is::Eq, libc::AF_UNIX as u64)?;
    rules.push(rule([
        family,
        arg(1, Is::MaskedEq(TYPE), libc::SOCK_DGRAM as u64)?,
    ])?);
    for protocol in [libc::NETLINK_ROUTE, libc::NETLINK_NETFILTER] {
        let family = arg(0, Is::Eq, libc::AF_NETLINK as u64)?;
        rules.push(rule([family, arg(2, Is::Eq, protocol as u64)?])?);
    }
    Ok(rules)
}

/// Compares the low 32 bits of an argument. The kernel uses no more of such an argument.
fn arg(index: u8, is: Is, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, Width::Dword, is, value)
}

fn rule(conditions: impl Into<Vec<SeccompCondition>>) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into())
}

fn any_of(index: u8, values: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    values
        .iter()
        .map(|value| rule([arg(index, Is::Eq, *value)?]))
        .collect()
}

fn program(
    rules: CallRules,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, otherwise, listed, machine)?.try_into()
}
