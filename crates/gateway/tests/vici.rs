//! Tests the control protocol: our client and stock swanctl, against the server with a fake
//! gateway.

#[path = "vici/answers.rs"]
mod answers;
mod program;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use answers::{connection, down, explanation, sa};
use esplanade::status::text::render_sa;
use esplanade::vici::client::{Client, Error};
use esplanade::vici::server::{BindError, Events, Request, Socket, serve};
use esplanade::vici::{ControlPacket, Section};
use program::{esplanade, text};
use tokio::sync::{mpsc, oneshot};

/// A server that gives fixed answers on its own thread. It stops when dropped.
struct Gateway {
    socket: PathBuf,
    _directory: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("run/esplanade.vici");
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let path = socket.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let socket = Socket::bind(&path).unwrap();
                let (sender, mut requests) = mpsc::channel(8);
                let events = Events::default();
                let server = tokio::spawn(serve(socket, sender, events.clone()));
                ready.send(()).unwrap();
                let answers = async {
                    while let Some(request) = requests.recv().await {
                        answer(request, &events);
                    }
                };
                tokio::select! { () = answers => {}, _ = stopped => {} }
                server.abort();
                let _ = server.await;
            });
        });
        is_ready.recv_timeout(Duration::from_secs(10)).unwrap();
        Self {
            socket,
            _directory: directory,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    fn client(&self) -> Client {
        Client::connect(&self.socket, Duration::from_secs(10)).unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

thread_local! {
    /// The number of commands that the gateway's thread received, and the commands that it leaves unanswered.
    static HEARD: Cell<usize> = const { Cell::new(0) };
    /// The number of times that the SAs were listed. Each time they have received 125,000 bytes more.
    static LISTED: Cell<u64> = const { Cell::new(0) };
    static HELD: RefCell<Vec<Request>> = const { RefCell::new(Vec::new()) };
}

/// Sends what one message does not hold: seven lists. With `long` a list alone does not fit.
fn list_long(request: &Request) -> bool {
    let lists = if request.message.text("long").is_some() {
        20
    } else {
        4
    };
    let text = vec!["x".repeat(50_000); lists];
    let numbers = (0..7).map(|number| (number.to_string(), text.clone()));
    let content: BTreeMap<_, _> = numbers.collect();
    let halves = |content: &BTreeMap<String, Vec<String>>| {
        let middle = content.keys().nth(content.len() / 2)?.clone();
        let mut first = content.clone();
        let second = first.split_off(&middle);
        (!first.is_empty()).then_some([first, second])
    };
    request.emit_divided("list-policy", "all", &content, &halves)
}

fn answer(request: Request, events: &Events) {
    let mut reply = Section::new();
    HEARD.set(HEARD.get() + 1);
    match request.command.as_str() {
        "hold" => return HELD.with_borrow_mut(|held| held.push(request)),
        "figures" => {
            let waiting = HELD.with_borrow(|held| {
                held.iter()
                    .filter(|request| !request.is_abandoned())
                    .count()
            });
            reply.set("heard", HEARD.get()).set("waiting", waiting);
        }
        "version" => {
            reply
                .set("daemon", "esplanade")
                .set("version", "0.1.0")
                .set("sysname", "Linux")
                .set("release", "6.1")
                .set("machine", "x86_64");
        }
        "stats" => {
            let mut uptime = Section::new();
            uptime.set("running", "5 minutes").set("since", "Jan 01");
            let mut workers = Section::new();
            workers.set("total", 2).set("idle", 1);
            let mut sas = Section::new();
            sas.set("total", 1).set("half-open", 0);
            let (mut engine, mut tiers) = (Section::new(), Section::new());
            tiers.set("AES_GCM_16_128", "portable");
            engine
                .set("name", "cpu")
                .set("tier", "aesni")
                .section("tiers", tiers)
                .list("disabled", ["self-test of the tier avx512 failed"]);
            reply
                .section("uptime", uptime)
                .section("workers", workers)
                .section("ikesas", sas)
                .section("engine", engine);
        }
        "get-counters" => {
            let mut drops = Section::new();
            drops.set("no-sa", 7);
            reply.section("drops", drops);
        }
        "list-sas" => {
            let asked = LISTED.replace(LISTED.get() + 1);
            request.emit("list-sa", sa(1_572_864 + 125_000 * asked));
        }
        "list-policies" => {
            if !list_long(&request) {
                return request.fail("not complete");
            }
        }
        "list-conns" => {
            request.emit("list-conn", connection());
            request.emit("list-conn", down());
        }
        "initiate" => {
            let mut line = Section::new();
            line.set("group", "IKE")
                .set("level", 1)
                .set("ikesa-name", "office")
                .set("msg", "initiating");
            request.emit("control-log", line);
            return match request.message.text("child") {
                Some("net") => request.succeed(),
                _ => request.fail("no child is called that"),
            };
        }
        "terminate" => {
            let mut message = Section::new();
            message.set("up", "no");
            events.emit("ike-updown", message);
            reply
                .set("success", "yes")
                .set("matches", 1)
                .set("terminated", 1);
        }
        "explain" => match request.message.text("packet") {
            Some("udp 10.0.0.5:1 -> 10.1.0.9:2") => reply = explanation(&request.message),
            Some("icmp 10.0.0.5 -> 10.1.0.9") => {
                reply.set("decision", "protect");
            }
            _ => return request.fail("`interface` is not one of the gateway's"),
        },
        // This is far more than one packet takes.
        "flood" => {
            reply.list("lines", std::iter::repeat_n("x".repeat(60_000), 20));
        }
        "forget" => return drop(request),
        _ => return request.unknown(),
    }
    request.reply(reply);
}

#[test]
fn commands_and_streamed_events() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    let version = client.command("version", Section::new()).unwrap();
    assert_eq!(version.text("daemon"), Some("esplanade"));

    let mut seen = Vec::new();
    client
        .streamed("list-sas", Section::new(), Some("list-sa"), |event| {
            seen.push(event);
        })
        .unwrap();
    assert_eq!(seen, [sa(1_572_864)]);

    // A client that did not register gets no events.
    assert!(
        client
            .command("list-sas", Section::new())
            .unwrap()
            .is_empty()
    );
    assert!(matches!(
        client.command("sing", Section::new()),
        Err(Error::UnknownCommand(_))
    ));
    assert!(matches!(
        client.streamed("version", Section::new(), Some("weather"), |_| {}),
        Err(Error::UnknownEvent(_))
    ));
    let failed = client.command("initiate", Section::new()).unwrap();
    assert_eq!(failed.text("success"), Some("no"));
}

#[test]
fn answers_that_do_not_fit_or_never_come_are_failures() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    for command in ["flood", "forget"] {
        let answer = client.command(command, Section::new()).unwrap();
        assert_eq!(answer.text("success"), Some("no"), "{command}");
    }
    assert!(client.command("version", Section::new()).is_ok());
}

#[test]
fn what_one_message_does_not_hold_comes_in_several_or_is_told() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    let mut keys = Vec::new();
    let mut events = 0;
    let mut list = |message: Section| {
        client
            .streamed("list-policies", message, Some("list-policy"), |event| {
                events += 1;
                let all = event.sub("all").unwrap();
                keys.extend(all.entries().map(|(key, _)| key.to_owned()));
            })
            .unwrap()
    };
    assert_eq!(list(Section::new()).text("success"), None);
    let mut long = Section::new();
    long.set("long", "yes");
    assert_eq!(list(long).text("success"), Some("no"));
    assert_eq!(keys, ["0", "1", "2", "3", "4", "5", "6"]);
    assert_eq!(events, 4);
}

#[test]
fn events_for_everybody_reach_those_who_registered() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    let mut seen = 0;
    let mut message = Section::new();
    message.set("ike", "office");
    // The event and the answer race. The second round surely comes after the first event.
    for _ in 0..2 {
        client
            .streamed("terminate", message.clone(), Some("ike-updown"), |_| {
                seen += 1
            })
            .unwrap();
    }
    assert!(seen <= 2);
}

#[test]
fn hostile_bytes_end_only_their_own_connection() {
    let gateway = Gateway::start();
    let register = ControlPacket::Register("list-sa".to_owned())
        .encode()
        .unwrap();
    let mut half = register.clone();
    half.truncate(6);
    for bytes in [
        &[0xff, 0xff, 0xff, 0xff][..],
        &[0, 0, 0, 0],
        &[0, 0, 0, 1, 9],
        &[0, 0, 0, 3, 0, 200, b'x'],
        &[0, 0, 0, 2, 5, 0],
        &half,
    ] {
        let mut stream = UnixStream::connect(&gateway.socket).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        // A reset is as good as an orderly end.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{bytes:?} was answered");
    }
    assert!(gateway.client().command("version", Section::new()).is_ok());
}

fn figure(gateway: &Gateway, key: &str) -> usize {
    let figures = gateway.client().command("figures", Section::new()).unwrap();
    figures.text(key).unwrap().parse().unwrap()
}

#[test]
fn idle_clients_lock_nobody_out() {
    let gateway = Gateway::start();
    // There are more clients than places, and half of them stopped in the middle of a packet.
    let idle: Vec<UnixStream> = (0..340)
        .map(|number| {
            let mut stream = UnixStream::connect(&gateway.socket).unwrap();
            if number % 2 == 0 {
                stream.write_all(&[0, 0, 1, 0, 0]).unwrap();
            }
            stream
        })
        .collect();
    assert_eq!(figure(&gateway, "heard"), 1);
    assert_eq!(figure(&gateway, "heard"), 2);
    // The server closed the connections that were idle for longest.
    let mut first = &idle[0];
    first
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    assert!(matches!(first.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn a_client_that_does_not_read_is_not_answered_again() {
    let gateway = Gateway::start();
    let mut stream = UnixStream::connect(&gateway.socket).unwrap();
    let register = ControlPacket::Register("list-sa".to_owned())
        .encode()
        .unwrap();
    stream.write_all(&register).unwrap();
    let request = ControlPacket::Request {
        command: "list-sas".to_owned(),
        message: Section::new(),
    };
    let requests = request.encode().unwrap().repeat(20_000);
    stream.set_nonblocking(true).unwrap();
    let sent = stream.write(&requests).unwrap() / 18;
    assert!(sent > 2_000, "{sent}");
    let mut heard = 0;
    // The count grows until the kernel's buffer is full.
    loop {
        let now = figure(&gateway, "heard");
        if now == heard + 1 {
            break;
        }
        heard = now;
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(heard < 1_500, "{heard}");
}

#[test]
fn a_client_that_leaves_waits_for_nothing() {
    let gateway = Gateway::start();
    let mut stream = UnixStream::connect(&gateway.socket).unwrap();
    let hold = ControlPacket::Request {
        command: "hold".to_owned(),
        message: Section::new(),
    };
    stream.write_all(&hold.encode().unwrap()).unwrap();
    let until = |waiting| {
        let end = Instant::now() + Duration::from_secs(10);
        while figure(&gateway, "waiting") != waiting {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until(1);
    drop(stream);
    until(0);
}

#[test]
fn long_requests_are_refused() {
    let gateway = Gateway::start();
    let mut message = Section::new();
    message.set("packet", "x".repeat(60_000));
    let mut client = gateway.client();
    assert!(client.command("version", message.clone()).is_ok());
    message.set("interface", "x".repeat(6_000));
    assert!(matches!(
        client.command("version", message),
        Err(Error::Io(_))
    ));
}

/// Nobody accepts the connection. Connecting takes no longer than a command may.
#[test]
fn a_full_queue_of_connections_is_a_time_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vici");
    let listener =
        socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    listener
        .bind(&socket2::SockAddr::unix(&path).unwrap())
        .unwrap();
    listener.listen(1).unwrap();
    let timeout = Duration::from_millis(100);
    let mut waiting = Vec::new();
    let error = loop {
        match Client::connect(&path, timeout) {
            Ok(client) => waiting.push(client),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::TimedOut(_)), "{error}");
}

#[test]
fn sockets_are_private_single_and_cleaned_up() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _guard = runtime.enter();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vici");

    // A socket file without a listener is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let socket = Socket::bind(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(matches!(Socket::bind(&path), Err(BindError::InUse(_))));
    drop(socket);
    assert!(!path.exists());

    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(Socket::bind(&path), Err(BindError::NotASocket(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn nobody_at_the_socket_is_unreachable() {
    let missing = Path::new("/nonexistent/vici");
    let error = Client::connect(missing, Duration::from_secs(1)).unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)));
}

#[test]
fn security_associations_are_readable() {
    let event = sa(1_572_864);
    let (name, content) = event.sections().next().unwrap();
    let expected = "\
office: ESTABLISHED, IKEv2, up 1m 05s, rekey in 3h 36m
  local   'gw-a.example.org' @ 192.0.2.1[4500]
  remote  'gw-b\u{fffd}[31m.example.org' @ 198.51.100.1[4500]
  suite   AES_GCM_16-128/PRF_HMAC_SHA2_256/CURVE_25519, full transcript
  net: INSTALLED, TUNNEL in UDP, up 1m 05s, rekey in 55m 00s, expires in 1h 04m
    traffic 10.0.0.0/16 <-> 10.1.0.0/16
    suite   ESP AES_GCM_16-128/ESN
    in      c1234567    1.5 MiB         1200 packets, last 3s ago
    out     c7654321      100 B            1 packet
";
    assert_eq!(render_sa(name, content), expected);
}

/// Runs stock swanctl. Returns `None` if it is not installed.
#[test]
fn explain_asks_the_running_gateway() {
    let gateway = Gateway::start();
    let socket = gateway.socket.to_str().unwrap();
    let run =
        |arguments: &[&str]| esplanade(&[&["explain", "--socket", socket], arguments].concat());
    let packet = "udp 10.0.0.5:1 -> 10.1.0.9:2";
    let output = run(&[
        packet,
        "--length",
        "1400",
        "--dont-fragment",
        "--dscp",
        "ef",
    ]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let asked = "decision       direction=out fragment=- length=1400 dont-fragment=yes dscp=ef";
    assert!(report.contains(asked), "{report}");
    let json = run(&[packet, "--in", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["decision"], "protect");
    assert_eq!(json["hops"][0]["path_mtu"], 1500);
    assert_eq!(json["hops"][0]["udp_encap"], false);

    for (arguments, code, what) in [
        (
            &["tcp 10.0.0.5:1 -> 10.1.0.9:2"][..],
            1,
            "`interface` is not",
        ),
        (&["icmp 10.0.0.5 -> 10.1.0.9"], 1, "of another version"),
        (&["icmp 10.0.0.5"], 2, "the packet has no destination"),
        (&[packet, "--config", "x.conf"], 2, "cannot be used with"),
        (&[packet, "--length", "19"], 2, "19 is not in"),
    ] {
        let output = run(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains(what), "{errors}");
    }
    drop(gateway);
}

#[test]
fn status_names_the_engine() {
    let gateway = Gateway::start();
    let socket = gateway.socket.to_str().unwrap();
    let status = |arguments: &[&str]| {
        let output = esplanade(&[&["status", "--socket", socket], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let shown = status(&[]);
    for line in [
        "office: ESTABLISHED",
        "dropped   no-sa 7\n",
        "engine    cpu, tier aesni (portable for AES_GCM_16_128)\nwarning   self-test of the tier avx512 failed\n",
    ] {
        assert!(shown.contains(line), "{line} is missing in {shown}");
    }
    let report: serde_json::Value = serde_json::from_str(&status(&["--json"])).unwrap();
    assert_eq!(report["engine"]["tier"], "aesni");
    assert_eq!(report["counters"]["drops"]["no-sa"], "7");
}

#[test]
fn status_shows_what_is_asked_for() {
    let gateway = Gateway::start();
    let socket = gateway.socket.to_str().unwrap();
    let status = |arguments: &[&str]| {
        let output = esplanade(&[&["status", "--socket", socket], arguments].concat());
        let told = (text(&output.stdout), text(&output.stderr));
        (output.status.code(), told.0, told.1)
    };
    let (code, brief, _) = status(&["--brief"]);
    let lines: Vec<&str> = brief.lines().collect();
    assert_eq!((code, lines.len()), (Some(0), 8));
    let first = "branch/lan1  waiting  198.51.100.2      4s  reason 1; next attempt in 6s; \
        12 packets dropped (no-sa 12)";
    assert_eq!(lines[0], first);
    assert_eq!(
        lines[7],
        "office/net   up       198.51.100.1  1m 05s  1200 packets in, 1 out"
    );

    let (_, shown, _) = status(&["office"]);
    assert!(shown.starts_with("office: ESTABLISHED"), "{shown}");
    assert!(
        !shown.contains("branch") && !shown.contains("engine"),
        "{shown}"
    );
    let (_, shown, _) = status(&["lan2", "branch/lan3", "--brief"]);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    let (_, shown, _) = status(&["--down"]);
    assert!(
        shown.contains("down      branch/lan7") && !shown.contains("office"),
        "{shown}"
    );
    let (_, shown, _) = status(&["--down", "--brief", "office"]);
    assert_eq!(shown, "");

    for (name, help) in [
        ("ofice", "did you mean `office`?"),
        ("branch/lan0", "did you mean `branch/lan"),
        ("zebra", "the connections are branch, office"),
    ] {
        let (code, shown, errors) = status(&[name]);
        assert_eq!((code, shown.as_str()), (Some(2), ""), "{errors}");
        assert!(errors.contains(&format!("is called `{name}`")), "{errors}");
        assert!(errors.contains(help), "{errors}");
    }
}

#[test]
fn status_measures_rates_and_tells_what_is_lost() {
    let gateway = Gateway::start();
    let socket = gateway.socket.to_str().unwrap();
    let status = |arguments: &[&str]| {
        let output = esplanade(&[&["status", "--socket", socket], arguments].concat());
        assert_eq!(output.status.code(), Some(0));
        text(&output.stdout)
    };
    let report: serde_json::Value =
        serde_json::from_str(&status(&["--rate", "1", "--brief", "--json"])).unwrap();
    let window = report["rate-window-ms"].as_u64().unwrap();
    assert!((1000..10_000).contains(&window), "{window}");
    let tunnels = report["tunnels"].as_array().unwrap();
    let named = |child: &str| tunnels.iter().find(|one| one["child"] == child).unwrap();
    let rate = named("net")["rates"]["bits-per-second-in"]
        .as_u64()
        .unwrap();
    let expected = 1_000_000_000 / window;
    assert!(
        rate.abs_diff(expected) <= expected / 100,
        "{rate} over {window} ms"
    );
    assert_eq!(named("lan1")["drops"]["no-sa"], 12);
    assert!(named("lan2").get("drops").is_none());

    let lost = "lost      branch/lan1: 12 packets dropped (no-sa 12)\n";
    assert!(status(&[]).contains(lost));
    assert!(status(&["lan1"]).ends_with(lost));
    assert!(!status(&["lan2"]).contains("lost"));
    assert!(status(&["--rate", "1", "--brief", "net"]).contains("/s in, 0 packets/s; 0 bit/s out"));
    let whole = status(&["--rate", "1", "--json"]);
    let whole: serde_json::Value = serde_json::from_str(&whole).unwrap();
    let lan = &whole["connections"][1]["branch"]["children"]["lan1"];
    assert_eq!(lan["rates"]["packets-per-second-out"], 0);
}

#[test]
fn the_verdict_for_monitors_has_the_first_reasons() {
    let gateway = Gateway::start();
    let socket = gateway.socket.to_str().unwrap();
    let check = |arguments: &[&str]| {
        let output = esplanade(&[&["status", "--socket", socket, "--check"], arguments].concat());
        (output.status.code(), text(&output.stderr))
    };
    let (code, errors) = check(&["--down", "--json"]);
    assert_eq!(code, Some(1));
    let expected = "error: 7 of 7 children are not up
  branch/lan1: reason 1; next attempt in 6s
  branch/lan2: reason 2; next attempt in 6s
  branch/lan3: reason 3; next attempt in 6s
  branch/lan4: reason 4; next attempt in 6s
  branch/lan5: reason 5; next attempt in 6s
  and 2 more
";
    assert!(errors.starts_with(expected), "{errors}");
    let (code, errors) = check(&["lan7", "--brief"]);
    assert_eq!(code, Some(1));
    assert!(
        errors.starts_with("error: 1 of 1 child is not up\n  branch/lan7: reason 7;"),
        "{errors}"
    );
    assert_eq!(check(&["office"]), (Some(0), String::new()));
}

fn swanctl(gateway: &Gateway, arguments: &[&str]) -> Option<(bool, String)> {
    let output = Command::new("swanctl")
        .args(arguments)
        .arg("--uri")
        .arg(format!("unix://{}", gateway.socket.display()))
        .output()
        .ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some((
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

#[test]
fn stock_swanctl_understands_us() {
    let gateway = Gateway::start();
    for (arguments, expected) in [
        (&["--version", "--daemon"][..], "esplanade"),
        (&["--stats"], "uptime: 5 minutes"),
        (&["--list-sas"], "office: #1, ESTABLISHED, IKEv2"),
        (&["--list-sas"], "AES_GCM_16-128"),
        (&["--list-conns"], "office: IKEv2"),
        (
            &["--initiate", "--child", "net"],
            "initiate completed successfully",
        ),
        (
            &["--terminate", "--ike", "office"],
            "terminate completed successfully",
        ),
    ] {
        let Some((success, text)) = swanctl(&gateway, arguments) else {
            println!("SKIP stock_swanctl_understands_us: swanctl is not installed");
            return;
        };
        assert!(success && text.contains(expected), "{arguments:?}: {text}");
    }
    let (success, text) = swanctl(&gateway, &["--initiate", "--child", "nothing"]).unwrap();
    assert!(
        !success && text.contains("no child is called that"),
        "{text}"
    );
}

/// Nothing can be loaded over the socket. Whoever tries hears so, command by command.
#[test]
fn what_strongswan_loads_is_refused_with_the_reason() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    for command in [
        "load-conn",
        "unload-conn",
        "load-cert",
        "load-key",
        "unload-key",
        "load-token",
        "load-shared",
        "unload-shared",
        "load-authority",
        "unload-authority",
        "load-pool",
        "unload-pool",
        "install",
        "uninstall",
        "redirect",
        "reload-settings",
        "reset-counters",
    ] {
        let answer = client.command(command, Section::new()).unwrap();
        assert_eq!(answer.text("success"), Some("no"), "{command}");
        assert!(!answer.text("errmsg").unwrap().is_empty(), "{command}");
    }
    // swanctl takes any answer to this one for success.
    let unknown = client.command("clear-creds", Section::new());
    assert!(matches!(unknown, Err(Error::UnknownCommand(_))));
    let file = gateway._directory.path().join("swanctl.conf");
    let secret =
        "secrets { ike-1 { secret = abc } }\nconnections { site { children { net { } } } }";
    std::fs::write(&file, secret).unwrap();
    let file = file.to_str().unwrap();
    for arguments in [
        &["--load-all", "--file", file][..],
        &["--load-conns", "--file", file],
    ] {
        let Some((success, text)) = swanctl(&gateway, arguments) else {
            println!("SKIP what_strongswan_loads_is_refused: swanctl is not installed");
            return;
        };
        let told = text.contains("configuration file alone");
        assert!(!success && told, "{arguments:?}: {text}");
    }
    // Its exit code is always 0. What it prints is ours.
    let (_, text) = swanctl(&gateway, &["--load-creds", "--file", file]).unwrap();
    assert!(text.contains("configuration file alone"), "{text}");
    let (success, _) = swanctl(&gateway, &["--load-creds", "--clear", "--file", file]).unwrap();
    assert!(!success);
}
