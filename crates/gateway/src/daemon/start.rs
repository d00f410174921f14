//! The start of the daemon. The guards, which keep traffic in, come first, then everything that can fail.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use esplanade_ike::{Endpoint, Host};
use esplanade_ipsec::Database;
use tokio::sync::mpsc;

use super::Daemon;
use super::Helpers;
use super::Inputs;
use super::Options;
use super::REQUESTS_WAITING_MAX;
use super::TICK;
use super::answers::refusals::RefusalTable;
use super::certificates;
use super::holds::Holds;
use super::host::guards::Guards;
use super::host::shielding::Shielding;
use super::job_pool::{self, JobPool};
use super::keys::KeyFile;
use super::path_probes::PathProbes;
use super::plane::{self, Plane};
use super::settings::load_queue::{ConfigurationInForce, LoadQueue};
use super::settings::policies;
use super::settings::tier;
use super::settings::token_secret;
use super::settle_ike;
use super::signals::Signals;
use super::silence::SilentPeers;
use super::spd_compiler::SpdCompiler;
use super::warn_of_missing;
use crate::config::Loaded;
use crate::confine::InForce;
use crate::failure::{Exit, Failure};
use crate::fetch::{NameStore, StatusFetcher};
use crate::join::Join;
use crate::rate::LineLimit;
use crate::vici::server::{self, BindError, Events, Socket};
use crate::worker::Clock;

/// The time after the start at which rules and routes are looked at, although nobody has changed them: others may have
/// had settings before that keep packets from the tunnels.
const FIRST_LOOK_AFTER: Duration = Duration::from_secs(2);

/// The results of the steps of a start that come before any step that can fail.
#[derive(Debug)]
struct Begun {
    socket: Result<Socket, Failure>,
    clock: Clock,
    started: Instant,
    database: Arc<Database>,
    join: Join,
    guards: crate::net::Result<Guards>,
    helpers: Helpers,
}

impl Daemon {
    pub(super) async fn start(
        loaded: Loaded,
        options: Options,
        helpers: Helpers,
    ) -> Result<(Self, Inputs), Failure> {
        // A second gateway, started by mistake, stops here, before it touches anything.
        let socket = match Socket::bind(&loaded.gateway.socket) {
            Err(error @ BindError::InUse(_)) => return Err(socket_failure(error)),
            other => other.map_err(socket_failure),
        };
        let (clock, started) = (Clock::start(), Instant::now());
        let database = Arc::new(Database::new());
        let mut join = Join::new(database.clone());
        let source = |remote| plane::source_for(remote, loaded.gateway.mark);
        join.configure(policies::configured(&loaded, source));
        join.set_peers(policies::addresses_of_peers(&loaded));
        // The guards, which keep traffic in, come next. Everything that can fail comes after them.
        let guards = Guards::raise(&loaded.gateway, &mut join, started).await;
        let stand = guards.is_ok();
        let begun = Begun {
            socket,
            clock,
            started,
            database,
            join,
            guards,
            helpers,
        };
        let result = Self::start_guarded(loaded, options, begun).await;
        if result.is_err() && stand {
            tracing::warn!(
                "the gateway does not start: what its policies protect goes nowhere until it does (`esplanade guard clear` gives up)"
            );
        }
        result
    }

    async fn start_guarded(
        mut loaded: Loaded,
        options: Options,
        begun: Begun,
    ) -> Result<(Self, Inputs), Failure> {
        let Begun {
            socket,
            clock,
            started,
            database,
            mut join,
            guards,
            helpers:
                Helpers {
                    updown,
                    fetcher,
                    tokens,
                },
        } = begun;
        let signals = Signals::watch()?;
        let keys = match &options.export_keys {
            None => None,
            Some(path) => Some(open_keys(path)?),
        };
        let token_secret = token_secret::load(&loaded.gateway);
        let socket = socket?;
        tier::choose(options.cpu_tier.or(loaded.gateway.cpu_tier))?;
        settle_ike(&mut loaded, keys.is_some(), token_secret);
        let (mut plane, from_plane) =
            Plane::start(&loaded.gateway, clock, database, guards).await?;
        join.set_engines(plane.engines().clone());
        let host = Host {
            runs_jobs: false,
            policies: Box::new(plane.keeper().shield_policies()),
            ..Host::new(plane.spi_allocator(), plane.routes())
        };
        let endpoint = Endpoint::new(loaded.ike.clone(), host, started);
        let threads = loaded.gateway.ike_threads;
        let job_pool = JobPool::start(threads.unwrap_or_else(job_pool::usual_threads))
            .map_err(|error| Failure::runtime(format!("cannot start a thread for IKE: {error}")))?;
        let compiler = SpdCompiler::start();
        let compiler = compiler.map_err(|error| {
            Failure::runtime(format!("cannot start the thread for the SPD: {error}"))
        })?;
        let (to_daemon, requests) = mpsc::channel(REQUESTS_WAITING_MAX);
        let events = Events::default();
        tokio::spawn(server::serve(socket, to_daemon, events.clone()));
        let mut daemon = Self {
            options,
            join,
            loaded,
            loads: LoadQueue::default(),
            in_force: ConfigurationInForce {
                number: 1,
                since: started,
            },
            started,
            clock,
            endpoint,
            job_pool,
            keys,
            waiters: Vec::new(),
            look_at_waiters: false,
            events,
            refused: HashSet::new(),
            silent_peers: SilentPeers::new(),
            probed: PathProbes::default(),
            repair_at: Some(match from_plane.routes_lag {
                true => started + TICK,
                false => started + FIRST_LOOK_AFTER,
            }),
            plane,
            shielding: Shielding::new(started),
            next_tick: started + TICK,
            certificates_at: started + certificates::TOLD_EVERY,
            next_balance: started,
            updown,
            moves_logged: LineLimit::new(10, 1),
            fetcher,
            statuses: StatusFetcher::default(),
            names: NameStore::default(),
            refusals: RefusalTable::default(),
            tokens,
            compiler,
            holds: Holds::default(),
            confined: InForce::default(),
        };
        warn_of_missing(&daemon.loaded);
        daemon.endpoint.set_wall_clock(started, SystemTime::now());
        daemon.look_names_up(started);
        daemon.endpoint.start(started);
        Ok((
            daemon,
            Inputs {
                plane: from_plane,
                requests,
                signals,
            },
        ))
    }
}

fn open_keys(path: &Path) -> Result<KeyFile, Failure> {
    KeyFile::open(path).map_err(|error| {
        let exit = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Exit::Forbidden,
            _ => Exit::Failure,
        };
        let what = format!("cannot open the key file {}: {error}", path.display());
        Failure::new(exit, what)
            .help("name a file that does not exist yet, in a folder that exists and is writable")
    })
}

fn socket_failure(error: BindError) -> Failure {
    let forbidden = matches!(
        &error,
        BindError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied
    );
    let failure = match forbidden {
        true => Failure::forbidden(&error),
        false => Failure::runtime(&error),
    };
    match error {
        BindError::Io { .. } => {
            failure.help("run as root, or set another `socket` in the gateway section")
        }
        _ => failure.help("stop the other gateway, or set another `socket` in the gateway section"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_may_not_be_made_is_forbidden() {
        let failure = |number| {
            socket_failure(BindError::Io {
                path: "/run/esplanade.sock".into(),
                source: std::io::Error::from_raw_os_error(number),
            })
        };
        assert_eq!(failure(libc::EACCES).exit, Exit::Forbidden);
        assert_eq!(failure(libc::ENOSPC).exit, Exit::Failure);
    }
}
