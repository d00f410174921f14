//! The command line: definitions, dispatch, and the client of the control socket.

mod args;
mod check;
mod control;
mod explain;
mod gpu;
mod lost_traffic;
mod status;

use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tracing::Level;

pub use args::{Cli, Command, Control, Guard, RunOptions, StatusOptions};

use crate::config::{self, Loaded, log_filter};
use crate::failure::{Exit, Failure};
use crate::fetch;
use crate::io::signals::ignore_meaningless;
use crate::tokens::{TokenSigner, keeper, module};
use crate::{confine, daemon, demo, helper_process, log, updown};
use control::Renewal;

/// Parses the command line and does what it says.
pub fn main() -> ExitCode {
    let _flush = log::FlushAtEnd;
    let done = match Cli::try_parse() {
        Ok(cli) => dispatch(cli.command),
        // Bad usage ends here with code 2, help and version with 0.
        Err(error) => match written(error.print()) {
            Err(failure) if !error.use_stderr() => Err(failure),
            _ => return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1)),
        },
    };
    match done {
        Ok(()) => Exit::Success.into(),
        Err(failure) => {
            if !failure.what.is_empty() {
                log::write_text(Level::ERROR, &format!("{failure}\n"));
            }
            failure.exit.into()
        }
    }
}

fn dispatch(command: Command) -> Result<(), Failure> {
    if let Command::Check { .. } | Command::Explain(_) | Command::Guard { .. } = command {
        // These commands read secrets. They also work if their memory cannot be hidden.
        let _ = confine::hide();
    }
    match command {
        Command::Run(options) => run(options),
        Command::Check { file } => check::check(&file),
        Command::Explain(options) => explain::explain(&options),
        Command::Status(options) => status::status(&options),
        Command::Up { control, name } => control::up(&control, &name),
        Command::Down { control, name } => control::down(&control, &name),
        Command::Rekey {
            control,
            name,
            reauth,
            no_wait,
        } => {
            let renewal = Renewal { reauth, no_wait };
            control::renew(&control, name.as_deref(), renewal)
        }
        Command::Engine {
            control,
            name,
            engine,
        } => control::engine(&control, &name, &engine),
        Command::Reload { control } => control::reload(&control),
        Command::Gpu { device, tables } => gpu::gpu(device.as_deref(), tables),
        Command::Guard {
            action: Guard::Clear { config },
        } => daemon::clear_guards(&load(&config)?),
        Command::Demo(options) => run_demo(options),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "esplanade", &mut script);
            print(&script)
        }
        Command::Man { command } => man(command.as_deref()),
        Command::FetchKeeper => serve("the keeper of the fetcher", fetch::keeper::serve),
        Command::Fetcher => serve("the fetcher", fetch::fetcher::serve),
        Command::FetchWorker => serve("a worker of the fetcher", fetch::worker::serve),
        Command::UpdownKeeper => serve(
            "the keeper of the runner of updown scripts",
            updown::keeper::serve,
        ),
        Command::UpdownRunner => serve("the runner of updown scripts", updown::runner::serve),
        Command::TokenKeeper => serve("the keeper of tokens", keeper::serve),
        Command::TokenModule => serve("the process of a PKCS#11 module", module::serve),
    }
}

/// Lets this process serve the gateway that has started it. The socket is the standard input.
fn serve(who: &str, serve: fn(OwnedFd) -> std::io::Result<()>) -> Result<(), Failure> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    match socket.and_then(serve) {
        // The gateway has ended before it has read what was for it.
        Err(error) if helper_process::is_end(&error) => Ok(()),
        served => served.map_err(|error| Failure::runtime(format!("{who}: {error}"))),
    }
}

fn run(options: RunOptions) -> Result<(), Failure> {
    ignore_meaningless();
    let runner = updown::runner_if_needed(&options.config).map_err(|error| {
        Failure::runtime(format!(
            "cannot start the runner of updown scripts: {error}"
        ))
    })?;
    if !options.unconfined {
        confine::begin()
            .map_err(|error| Failure::runtime(format!("cannot give up rights: {error}")))?;
    }
    // From here on, a blocked or closed standard error neither delays nor ends the gateway.
    log::start(options.log_format)
        .map_err(|error| Failure::runtime(format!("cannot start the log: {error}")))?;
    let mut loaded = load(&options.config)?;
    let modules = &loaded.gateway.modules;
    let modules = modules.iter().map(|one| one.path.clone()).collect();
    let tokens = TokenSigner::start(modules)
        .map_err(|error| Failure::runtime(format!("cannot start the keeper of tokens: {error}")));
    let tokens = tokens?;
    if tokens.read_certificates(&loaded.absent_certificates) {
        loaded = load(&options.config)?;
    }
    loaded.forget_text();
    let filter = options
        .log_level
        .as_deref()
        .unwrap_or(&loaded.gateway.log_level);
    let filter = log_filter::parse(filter).map_err(|error| {
        Failure::new(Exit::Usage, format!("--log-level: {error}"))
            .help("write a level, such as `debug`")
    })?;
    log::init(options.log_format, filter);
    if let Some(path) = &options.export_keys {
        tracing::warn!(
            file = %path.display(),
            "session keys are written to a file: whoever reads it can decrypt the traffic"
        );
    }
    daemon::run(
        loaded,
        daemon::Options {
            config: options.config,
            export_keys: options.export_keys,
            cpu_tier: options.cpu_tier,
        },
        runner,
        tokens,
    )
}

/// Tells whether standard error takes colours.
fn colour() -> bool {
    takes_colours(&std::io::stderr())
}

fn takes_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Loads the configuration; errors and warnings go to standard error.
fn load(file: &Path) -> Result<Loaded, Failure> {
    let colour = colour();
    match config::load(file) {
        Ok(loaded) => {
            log::write_text(Level::WARN, &loaded.warnings.render(colour));
            Ok(loaded)
        }
        Err(diagnostics) => {
            log::write_text(Level::ERROR, &diagnostics.render(colour));
            let what = format!("{} in {}", diagnostics.count(), file.display());
            Err(Failure::new(Exit::Configuration, what))
        }
    }
}

fn run_demo(options: demo::DemoOptions) -> Result<(), Failure> {
    demo::run(options).map_err(|error| {
        let exit = match error {
            demo::Error::Forbidden(_) => Exit::Forbidden,
            demo::Error::Interrupted => Exit::Interrupted,
            _ => Exit::Failure,
        };
        Failure::new(exit, error)
    })
}

fn man(command: Option<&str>) -> Result<(), Failure> {
    let mut page = Cli::command();
    page.build();
    if let Some(name) = command {
        let Some(sub) = page.find_subcommand(name) else {
            let names: Vec<&str> = page
                .get_subcommands()
                .map(clap::Command::get_name)
                .collect();
            let failure = Failure::new(Exit::Usage, format!("there is no command `{name}`"));
            return Err(failure.help(format!("the commands are {}", names.join(", "))));
        };
        page = sub.clone();
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(page)
        .render(&mut text)
        .map_err(Failure::runtime)?;
    print(&text)
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no failure.
fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

fn written(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::runtime(
            format!("cannot write to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}
