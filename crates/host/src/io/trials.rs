//! Tests the confinement. Each trial runs in its own process, which is confined as the gateway is
//! and does one thing.

use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::ptr::{null, null_mut};
use std::sync::mpsc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, dumpable_behavior, getrlimit, set_dumpable_behavior,
    setrlimit, test_kill_process,
};
use rustix::thread::CapabilitySet;
use socket2::{Domain, Protocol, Socket, Type};

use super::sys::{EventFd, link_name};
use super::trap;
use super::xdp::MAP_UPDATE;
use crate::confine::{self, ControlConfinement};

const NET_ADMIN: CapabilitySet = CapabilitySet::NET_ADMIN;
const NET_RAW: CapabilitySet = CapabilitySet::NET_RAW;
const IPC_LOCK: CapabilitySet = CapabilitySet::IPC_LOCK;

const TRIAL: &str = "ESPLANADE_TRIAL";
/// Names the part of the gateway that tries to send signals.
const SIGNALS: &str = "ESPLANADE_TRIAL_SIGNALS";
const PLACE: &str = "ESPLANADE_TRIAL_PLACE";
/// Exit status of a trial: the kernel lacks a part of the confinement.
const LACKING: i32 = 77;

/// The folders of a trial, and the process that runs it. `etc` holds the configuration, `run` the
/// control socket, and `other` holds files that the gateway must not touch.
struct TrialFolder(PathBuf, u32);

impl TrialFolder {
    fn etc(&self, name: &str) -> PathBuf {
        self.0.join("a/etc").join(name)
    }

    fn run(&self, name: &str) -> PathBuf {
        self.0.join("a/run").join(name)
    }

    fn other(&self, name: &str) -> PathBuf {
        self.0.join("a/other").join(name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialOutcome {
    Works,
    /// Seccomp refused the call.
    NotPermitted,
    /// Landlock refused the access.
    Denied,
    Killed,
}

use TrialOutcome::{Denied, Killed, NotPermitted, Works};

type ConfinementTrial = (
    &'static str,
    TrialOutcome,
    fn(&TrialFolder) -> io::Result<()>,
);

fn call(number: i64, arguments: [usize; 5]) -> io::Result<()> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: only the trials below call this. Their pointers are null, or point to data that
    // outlives the call.
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    super::sys::check(result).map(drop)
}

fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<()> {
    Socket::new(domain.into(), kind.into(), Some(Protocol::from(protocol))).map(drop)
}

fn map(protection: i32) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the call creates a new mapping, to which nothing refers yet.
    let place = unsafe { libc::mmap(null_mut(), 4096, protection, flags, -1, 0) };
    match place == libc::MAP_FAILED {
        true => Err(io::Error::last_os_error()),
        false => Ok(place as usize),
    }
}

/// Reads a file as a reload does.
fn read_in_thread(path: PathBuf) -> io::Result<()> {
    let (sender, outcome) = mpsc::channel();
    confine::start_reading("load".to_owned(), move || {
        let kept = rustix::thread::capabilities(None).unwrap();
        assert!(kept.permitted.is_empty() && kept.effective.is_empty());
        sender.send(fs::read(path).map(drop)).unwrap();
    })?;
    outcome.recv().map_err(io::Error::other)?
}

const FILES: &[ConfinementTrial] = &[
    ("reads the configuration", Works, |place| {
        fs::read(place.etc("esplanade.conf")).map(drop)
    }),
    ("reads a file that has come since", Works, |place| {
        fs::read(place.etc("x509/new.pem")).map(drop)
    }),
    ("looks through its folder", Works, |place| {
        fs::read_dir(place.etc("x509")).map(drop)
    }),
    ("removes the control socket", Works, |place| {
        fs::remove_file(place.run("control"))
    }),
    ("reads the kernel's settings", Works, |_| {
        fs::read("/proc/sys/net/ipv4/conf/all/forwarding").map(drop)
    }),
    ("reads the configuration in a thread", Works, |place| {
        read_in_thread(place.etc("x509/new.pem"))
    }),
    ("reads the accounts in a thread", Denied, |_| {
        read_in_thread("/etc/passwd".into())
    }),
    ("reads the accounts", Denied, |_| {
        File::open("/etc/passwd").map(drop)
    }),
    ("reads the keys of others", Denied, |place| {
        File::open(place.other("key")).map(drop)
    }),
    ("lists the root folder", Denied, |_| {
        fs::read_dir("/").map(drop)
    }),
    ("reads the memory of others", Denied, |place| {
        File::open(format!("/proc/{}/maps", place.1)).map(drop)
    }),
    ("reads a device", Denied, |_| {
        File::open("/dev/zero").map(drop)
    }),
    ("writes to the configuration", Denied, |place| {
        File::options()
            .append(true)
            .open(place.etc("esplanade.conf"))
            .map(drop)
    }),
    ("makes a file", Denied, |place| {
        File::create(place.etc("new")).map(drop)
    }),
    ("empties a file", Denied, |place| {
        File::create(place.other("key")).map(drop)
    }),
    ("removes the configuration", Denied, |place| {
        fs::remove_file(place.etc("esplanade.conf"))
    }),
    ("removes the files of others", Denied, |place| {
        fs::remove_file(place.other("key"))
    }),
    ("makes a folder", NotPermitted, |place| {
        fs::create_dir(place.etc("new"))
    }),
    ("renames", NotPermitted, |place| {
        fs::rename(place.etc("esplanade.conf"), place.etc("b"))
    }),
    ("makes a link", NotPermitted, |place| {
        fs::hard_link(place.etc("esplanade.conf"), place.etc("b"))
    }),
    ("makes a symbolic link", NotPermitted, |place| {
        std::os::unix::fs::symlink("/", place.etc("b"))
    }),
    ("changes a mode", NotPermitted, |place| {
        fs::set_permissions(
            place.other("key"),
            fs::metadata(place.other("key"))?.permissions(),
        )
    }),
    ("changes an owner", NotPermitted, |place| {
        std::os::unix::fs::chown(place.other("key"), Some(0), None)
    }),
];

const SOCKETS: &[ConfinementTrial] = &[
    ("sends a datagram", Works, |_| {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.send_to(&[1], socket.local_addr()?).map(drop)
    }),
    ("asks for routes", Works, |_| {
        socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)
    }),
    ("asks for tables", Works, |_| {
        socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER)
    }),
    ("tells the service manager", Works, |place| {
        UnixDatagram::unbound()?
            .send_to(&[1], place.run("notify"))
            .map(drop)
    }),
    ("connects by TCP", NotPermitted, |_| {
        TcpStream::connect("127.0.0.1:9").map(drop)
    }),
    ("listens for TCP", NotPermitted, |_| {
        TcpListener::bind("127.0.0.1:0").map(drop)
    }),
    ("connects to a service", NotPermitted, |place| {
        UnixStream::connect(place.run("control")).map(drop)
    }),
    ("listens as a service", NotPermitted, |place| {
        UnixListener::bind(place.run("new")).map(drop)
    }),
    ("opens a packet socket", NotPermitted, |_| {
        Socket::new(Domain::PACKET, Type::RAW, None).map(drop)
    }),
    ("watches the kernel's events", NotPermitted, |_| {
        socket(libc::AF_NETLINK, libc::SOCK_RAW, 15)
    }),
    ("configures the IPsec of the kernel", NotPermitted, |_| {
        socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_XFRM)
    }),
    ("uses the kernel's cryptography", NotPermitted, |_| {
        socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)
    }),
    ("uses Bluetooth", NotPermitted, |_| {
        socket(libc::AF_BLUETOOTH, libc::SOCK_RAW, 0)
    }),
    ("opens a socket past the stack", NotPermitted, |_| {
        socket(libc::AF_XDP, libc::SOCK_RAW, 0)
    }),
    ("opens a vsock socket", NotPermitted, |_| {
        socket(libc::AF_VSOCK, libc::SOCK_DGRAM, 0)
    }),
];

const PROCESSES: &[ConfinementTrial] = &[
    ("keeps two capabilities at most", Works, |_| {
        let kept = rustix::thread::capabilities(None)?.permitted;
        assert!((NET_RAW | NET_ADMIN).contains(kept), "{kept:?}");
        Ok(())
    }),
    ("starts a thread", Works, |_| {
        let name = std::thread::Builder::new().name("trial".into());
        let thread = name.spawn(|| std::thread::sleep(Duration::from_millis(1)))?;
        thread.join().map_err(|_| io::Error::other("it died"))
    }),
    ("panics and goes on", Works, |_| {
        // The backtrace reads its names from the program's file, which the confinement must permit
        // or survive.
        let caught = std::panic::catch_unwind(|| {
            let trace = std::backtrace::Backtrace::force_capture().to_string();
            assert!(!trace.contains("trials::child"), "{trace}");
        });
        caught
            .err()
            .map(drop)
            .ok_or_else(|| io::Error::other("no names"))
    }),
    ("waits and is woken", Works, |_| {
        EventFd::new()?.notify();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(()));
        receiver.recv().map_err(io::Error::other)
    }),
    ("allocates and frees memory", Works, |_| {
        let mut much = vec![1_u8; 64 << 20];
        much.shrink_to(1 << 20);
        Ok(())
    }),
    ("knows its interfaces", Works, |_| {
        match link_name(1).as_str() {
            "lo" => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }),
    ("shows its memory", NotPermitted, |_| {
        Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
    }),
    ("raises a limit", NotPermitted, |_| {
        let none = Rlimit {
            current: None,
            maximum: None,
        };
        Ok(setrlimit(Resource::Core, none)?)
    }),
    ("signals another process", NotPermitted, |place| {
        call(libc::SYS_kill, [place.1 as usize, 0, 0, 0, 0])
    }),
    ("signals another's thread", NotPermitted, |place| {
        let parent = place.1 as usize;
        call(libc::SYS_tgkill, [parent, parent, 0, 0, 0])
    }),
    ("makes memory that it can execute", NotPermitted, |_| {
        map(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC).map(drop)
    }),
    ("makes data executable", NotPermitted, |_| {
        let place = map(libc::PROT_READ | libc::PROT_WRITE)?;
        call(
            libc::SYS_mprotect,
            [
                place,
                4096,
                (libc::PROT_READ | libc::PROT_EXEC) as usize,
                0,
                0,
            ],
        )
    }),
    ("makes a file in memory", NotPermitted, |_| {
        call(libc::SYS_memfd_create, [c"x".as_ptr() as usize, 0, 0, 0, 0])
    }),
    ("injects terminal input", NotPermitted, |_| {
        let byte = 0_u8;
        let terminal = io::stdin().as_raw_fd() as usize;
        call(
            libc::SYS_ioctl,
            [
                terminal,
                libc::TIOCSTI as usize,
                &raw const byte as usize,
                0,
                0,
            ],
        )
    }),
    ("installs a seccomp filter", NotPermitted, |_| {
        call(libc::SYS_seccomp, [1, 0, 0, 0, 0])
    }),
    ("executes a program", Killed, |_| {
        Err(Command::new("/bin/true").exec())
    }),
    ("starts a program", Killed, |_| {
        Command::new("/bin/true").spawn().map(drop)
    }),
    ("forks", Killed, |_| {
        call(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0, 0])
    }),
    ("creates a namespace", Killed, |_| {
        call(
            libc::SYS_unshare,
            [libc::CLONE_NEWUSER as usize, 0, 0, 0, 0],
        )
    }),
    ("enters a namespace", Killed, |_| {
        call(libc::SYS_setns, [0, 0, 0, 0, 0])
    }),
    ("is traced", Killed, |_| {
        call(
            libc::SYS_ptrace,
            [libc::PTRACE_TRACEME as usize, 0, 0, 0, 0],
        )
    }),
    ("reads another's memory", Killed, |place| {
        call(libc::SYS_process_vm_readv, [place.1 as usize, 0, 0, 0, 0])
    }),
    ("mounts", Killed, |place| {
        let folder = place.0.as_os_str().as_encoded_bytes().as_ptr() as usize;
        call(
            libc::SYS_mount,
            [folder, folder, 0, libc::MS_BIND as usize, 0],
        )
    }),
    ("loads a program into the kernel", Killed, |_| {
        call(libc::SYS_bpf, [0, 0, 0, 0, 0])
    }),
    ("loads a module", Killed, |_| {
        call(libc::SYS_finit_module, [0, 0, 0, 0, 0])
    }),
    ("sets up io_uring", Killed, |_| {
        call(
            libc::SYS_io_uring_setup,
            [1, null::<u8>() as usize, 0, 0, 0],
        )
    }),
    ("opens a performance counter", Killed, |_| {
        call(libc::SYS_perf_event_open, [0, 0, 0, 0, 0])
    }),
    ("handles page faults", Killed, |_| {
        call(libc::SYS_userfaultfd, [0, 0, 0, 0, 0])
    }),
    ("uses a keyring of the kernel", Killed, |_| {
        call(libc::SYS_keyctl, [0, 0, 0, 0, 0])
    }),
    ("opens by handle", Killed, |_| {
        call(libc::SYS_open_by_handle_at, [0, 0, 0, 0, 0])
    }),
    ("changes its user", Killed, |_| {
        call(libc::SYS_setresuid, [1, 1, 1, 0, 0])
    }),
    ("changes its personality", Killed, |_| {
        call(libc::SYS_personality, [0, 0, 0, 0, 0])
    }),
    ("sets the clock", Killed, |_| {
        call(libc::SYS_clock_settime, [0, 0, 0, 0, 0])
    }),
];

/// A command of fcntl on a socket.
fn control(command: i32, argument: usize) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let descriptor = socket.as_raw_fd() as usize;
    call(
        libc::SYS_fcntl,
        [descriptor, command as usize, argument, 0, 0],
    )
}

/// A request of ioctl on a socket, about the number `value`.
fn request(request: libc::Ioctl, value: i32) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let descriptor = socket.as_raw_fd() as usize;
    let place = &raw const value as usize;
    call(libc::SYS_ioctl, [descriptor, request as usize, place, 0, 0])
}

const FIOSETOWN: libc::Ioctl = 0x8901;
const SIOCSPGRP: libc::Ioctl = 0x8902;
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;

/// Calls that reach another process by an argument.
const OTHERS: &[ConfinementTrial] = &[
    ("changes the mode of a socket", Works, |_| {
        control(libc::F_SETFL, libc::O_NONBLOCK as usize)
    }),
    ("copies a descriptor", Works, |_| {
        UdpSocket::bind("127.0.0.1:0")?.try_clone().map(drop)
    }),
    ("binds itself to processors", Works, |_| {
        let all = [u64::MAX; 16];
        call(
            libc::SYS_sched_setaffinity,
            [0, size_of_val(&all), all.as_ptr() as usize, 0, 0],
        )
    }),
    (
        "has the kernel signal another process",
        NotPermitted,
        |place| control(libc::F_SETOWN, place.1 as usize),
    ),
    ("has it signal another's thread", NotPermitted, |place| {
        let owner = [0, place.1 as i32];
        control(F_SETOWN_EX, owner.as_ptr() as usize)
    }),
    ("chooses the signal of a descriptor", NotPermitted, |_| {
        control(F_SETSIG, libc::SIGKILL as usize)
    }),
    ("is signalled by a descriptor", NotPermitted, |_| {
        control(libc::F_SETFL, libc::O_ASYNC as usize)
    }),
    ("watches a folder by signals", NotPermitted, |_| {
        control(libc::F_NOTIFY, 1)
    }),
    ("takes a lease", NotPermitted, |_| {
        control(libc::F_SETLEASE, libc::F_RDLCK as usize)
    }),
    ("is signalled by a request", NotPermitted, |_| {
        request(libc::FIOASYNC, 1)
    }),
    (
        "requests signals for another process",
        NotPermitted,
        |place| request(FIOSETOWN, place.1 as i32),
    ),
    (
        "requests signals for another group",
        NotPermitted,
        |place| request(SIOCSPGRP, place.1 as i32),
    ),
    (
        "presses another process onto a processor",
        NotPermitted,
        |place| {
            let first = 1_u64;
            call(
                libc::SYS_sched_setaffinity,
                [place.1 as usize, 8, &raw const first as usize, 0, 0],
            )
        },
    ),
    (
        "reads the limits of another process",
        NotPermitted,
        |place| {
            let mut limit = [0_u64; 2];
            let into = limit.as_mut_ptr() as usize;
            call(libc::SYS_prlimit64, [place.1 as usize, 0, 0, into, 0])
        },
    ),
    ("signals a thread by its number", NotPermitted, |place| {
        call(libc::SYS_tkill, [place.1 as usize, 0, 0, 0, 0])
    }),
    ("queues a signal", NotPermitted, |place| {
        call(libc::SYS_rt_sigqueueinfo, [place.1 as usize, 0, 0, 0, 0])
    }),
    ("queues a signal for a thread", NotPermitted, |place| {
        let other = place.1 as usize;
        call(libc::SYS_rt_tgsigqueueinfo, [other, other, 0, 0, 0])
    }),
    ("opens another process", NotPermitted, |place| {
        call(libc::SYS_pidfd_open, [place.1 as usize, 0, 0, 0, 0])
    }),
    ("signals by a descriptor", NotPermitted, |_| {
        call(libc::SYS_pidfd_send_signal, [0, 0, 0, 0, 0])
    }),
    ("changes another's priority", NotPermitted, |place| {
        call(libc::SYS_setpriority, [0, place.1 as usize, 19, 0, 0])
    }),
    ("changes another's priority of I/O", NotPermitted, |place| {
        call(libc::SYS_ioprio_set, [1, place.1 as usize, 0, 0, 0])
    }),
    ("changes another's scheduling", NotPermitted, |place| {
        call(libc::SYS_sched_setscheduler, [place.1 as usize, 0, 0, 0, 0])
    }),
    ("changes the parameters of that", NotPermitted, |place| {
        call(libc::SYS_sched_setparam, [place.1 as usize, 0, 0, 0, 0])
    }),
    ("changes its attributes", NotPermitted, |place| {
        call(libc::SYS_sched_setattr, [place.1 as usize, 0, 0, 0, 0])
    }),
    ("moves another process to a group", NotPermitted, |place| {
        call(libc::SYS_setpgid, [place.1 as usize, 0, 0, 0, 0])
    }),
    ("moves another's memory", NotPermitted, |place| {
        call(libc::SYS_migrate_pages, [place.1 as usize, 0, 0, 0, 0])
    }),
    ("makes a timer that signals", NotPermitted, |_| {
        call(libc::SYS_timer_create, [0, 0, 0, 0, 0])
    }),
    ("has a queue signal", NotPermitted, |_| {
        call(libc::SYS_mq_notify, [0, 0, 0, 0, 0])
    }),
    ("makes a segment that others share", NotPermitted, |_| {
        call(libc::SYS_shmget, [1, 4096, 0, 0, 0])
    }),
    ("advises about another's memory", Killed, |_| {
        call(libc::SYS_process_madvise, [0, 0, 0, 0, 0])
    }),
];

/// The trials of a gateway that opens links past the kernel's stack.
const WITH_XDP: &[ConfinementTrial] = &[
    ("fills a map of sockets", Works, |_| {
        // It is no map: the kernel says so, and not the confinement.
        match bpf(MAP_UPDATE as usize) {
            Err(_) => Ok(()),
            Ok(()) => Err(io::Error::other("a map was filled")),
        }
    }),
    ("locks memory in the control thread", Works, |_| {
        let kept = rustix::thread::capabilities(None)?.permitted;
        assert_eq!(kept.contains(IPC_LOCK), kept.contains(NET_RAW));
        assert!((NET_RAW | NET_ADMIN | IPC_LOCK).contains(kept), "{kept:?}");
        Ok(())
    }),
    ("makes a map", Killed, |_| bpf(0)),
    ("reads a map", Killed, |_| bpf(1)),
    ("deletes from a map", Killed, |_| bpf(3)),
    ("loads such a program", Killed, |_| bpf(5)),
    ("attaches a program", Killed, |_| bpf(8)),
    ("opens a program by its number", Killed, |_| bpf(13)),
    ("attaches a program to a link", Killed, |_| bpf(28)),
    ("calls no command", Killed, |_| bpf(usize::MAX)),
    ("opens a socket past the stack again", Works, |_| {
        // Without CAP_NET_RAW it is the kernel that refuses, and not the confinement.
        socket(libc::AF_XDP, libc::SOCK_RAW, 0).or(Ok(()))
    }),
    (
        "opens one of virtual machines all the same",
        NotPermitted,
        |_| socket(libc::AF_VSOCK, libc::SOCK_DGRAM, 0),
    ),
];

fn bpf(command: usize) -> io::Result<()> {
    call(libc::SYS_bpf, [command, 0, 0, 0, 0])
}

/// Runs the trial that the environment names, in a process of its own. Without that name it does
/// nothing.
#[test]
fn child() {
    let (Ok(name), Ok(place)) = (std::env::var(TRIAL), std::env::var(PLACE)) else {
        return;
    };
    let place = TrialFolder(place.into(), parent_id());
    let trials = [FILES, SOCKETS, PROCESSES, OTHERS, WITH_XDP];
    let trial = trials.into_iter().flatten().find(|trial| trial.0 == name);
    let (_, expected, run) = trial.expect("a trial of that name");
    confine::begin().unwrap();
    assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    assert_eq!(getrlimit(Resource::Core).maximum, Some(0));
    confine::settle(true);
    let file = place.etc("esplanade.conf");
    let force = confine::controlling(&ControlConfinement {
        config: &file,
        read: std::slice::from_ref(&file),
        readable: &[],
        socket: &place.run("control"),
        gpu: false,
        xdp: WITH_XDP.iter().any(|trial| trial.0 == name),
    });
    let force = force.unwrap();
    if force.landlock.is_none() || !force.seccomp {
        std::process::exit(LACKING);
    }
    let result = run(&place);
    let refused = !trap::take_refused().is_empty();
    assert_eq!(
        refused,
        *expected == NotPermitted,
        "refusals are noted: {result:?}"
    );
    std::process::exit(
        result
            .err()
            .map_or(0, |error| error.raw_os_error().unwrap_or(99)),
    );
}

fn answer(name: &str) -> Result<TrialOutcome, Output> {
    let folder = tempfile::tempdir().unwrap();
    let place = TrialFolder(folder.path().to_owned(), 0);
    for made in [place.etc("x509"), place.run(""), place.other("")] {
        fs::create_dir_all(made).unwrap();
    }
    for file in [
        place.etc("esplanade.conf"),
        place.etc("x509/new.pem"),
        place.other("key"),
    ] {
        fs::write(file, "").unwrap();
    }
    let _control = UnixListener::bind(place.run("control")).unwrap();
    let _manager = UnixDatagram::bind(place.run("notify")).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "io::trials::child", "--nocapture"])
        .env(TRIAL, name)
        .env(PLACE, folder.path())
        .output()
        .unwrap();
    match (output.status.code(), output.status.signal()) {
        (Some(0), _) => Ok(Works),
        (Some(libc::EPERM), _) => Ok(NotPermitted),
        (Some(libc::EACCES), _) => Ok(Denied),
        (_, Some(libc::SIGSYS)) => Ok(Killed),
        _ => Err(output),
    }
}

fn try_all(trials: &[ConfinementTrial]) {
    for (name, expected, _) in trials {
        match answer(name) {
            Ok(answer) => assert_eq!(answer, *expected, "it {name}"),
            Err(output) if output.status.code() == Some(LACKING) => {
                println!("SKIP confinement: the kernel has no Landlock or no seccomp");
                return;
            }
            Err(output) => panic!("it {name}: {output:?}"),
        }
    }
}

#[test]
fn files_are_those_of_the_configuration() {
    try_all(FILES);
}

#[test]
fn sockets_are_those_of_a_gateway() {
    try_all(SOCKETS);
}

#[test]
fn nothing_leads_out_of_the_process() {
    try_all(PROCESSES);
}

#[test]
fn one_command_of_bpf_is_left_for_links_past_the_stack() {
    try_all(WITH_XDP);
}

#[test]
fn no_argument_reaches_another_process() {
    try_all(OTHERS);
}

/// Where seccomp is not in force, Landlock keeps signals from other processes: in the thread that drives a GPU, and in
/// the processes that use PKCS#11 modules. Without a name in the environment it does nothing.
#[test]
fn signalling_child() {
    let Ok(name) = std::env::var(SIGNALS) else {
        return;
    };
    let parent = i32::try_from(parent_id()).ok().and_then(Pid::from_raw);
    let signal = move || test_kill_process(parent.unwrap());
    assert_eq!(signal(), Ok(()), "before the confinement");
    if name == "gpu" {
        confine::begin().unwrap();
        confine::settle(true);
        let thread = std::thread::spawn(move || {
            confine::driving().unwrap();
            signal()
        });
        assert_eq!(thread.join().unwrap(), Err(Errno::PERM));
        assert_eq!(signal(), Ok(()), "another thread");
    } else {
        confine::keeping().unwrap();
        assert_eq!(signal(), Err(Errno::PERM));
        // The keeper ends a module's process that gives no answer.
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}

#[test]
fn threads_and_helpers_without_seccomp_signal_nobody() {
    // SAFETY: the call asks for the version, and takes no pointers.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) };
    if version < 6 {
        println!("SKIP signal-scope: the kernel's Landlock has none");
        return;
    }
    for name in ["gpu", "keeper"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "io::trials::signalling_child", "--nocapture"])
            .env(SIGNALS, name)
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    }
}
