//! Processes that serve the gateway end when it ends, whatever it leaves unread.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use esplanade::helper_process::packet_pair;
use rustix::event::{PollFd, PollFlags, poll};

/// A process that has not ended by then is there for ever.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(command: &str, socket: UnixStream) -> Child {
    Command::new(env!("CARGO_BIN_EXE_esplanade"))
        .arg(command)
        .stdin(std::os::fd::OwnedFd::from(socket))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until there is something to read, and reads nothing.
fn wait_for_message(gateway: &UnixStream) {
    let mut readable = [PollFd::new(gateway, PollFlags::IN)];
    poll(&mut readable, None).unwrap();
    assert!(readable[0].revents().contains(PollFlags::IN));
}

fn end_of(command: &str, mut child: Child) -> ExitStatus {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("{command} outlives the gateway");
}

/// Starts each keeper, and ends it by `end`. Returns how it ended.
fn ended_by(end: impl Fn(UnixStream)) -> Vec<(&'static str, ExitStatus)> {
    let pairs = [
        ("fetch-keeper", packet_pair::<UnixStream>()),
        ("updown-keeper", packet_pair()),
        ("token-keeper", UnixStream::pair()),
    ];
    let ended = pairs.map(|(command, pair)| {
        let (mut gateway, theirs) = pair.unwrap();
        let messages = match command {
            "updown-keeper" => ["{\"Script\":\"true\"}", "\"Complete\""].as_slice(),
            "token-keeper" => &[
                "{\"modules\":[]}\n",
                r#"{"id":1,"place":{"module":"/x","slot":null,"handle":[1]},"task":"Certificate"}"#,
                "\n",
            ],
            _ => &[],
        };
        let child = start(command, theirs);
        for message in messages {
            gateway.write_all(message.as_bytes()).unwrap();
        }
        wait_for_message(&gateway);
        end(gateway);
        (command, end_of(command, child))
    });
    ended.into()
}

/// The kernel resets the socket of a gateway that was killed with messages unread.
#[test]
fn helpers_end_with_a_gateway_that_has_not_read() {
    for (command, status) in ended_by(drop) {
        assert!(status.success(), "{command}: {status}");
    }
}

/// What is no message ends the process that reads it. It is not started again for nobody.
#[test]
fn helpers_that_fail_end_with_the_gateway() {
    ended_by(|mut gateway| gateway.write_all(b"?\n").unwrap());
}
