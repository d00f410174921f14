//! The end of the gateway: peers and scripts are told.

use std::time::{Duration, Instant};

use esplanade_ike::Endpoint;

use super::Daemon;
use super::Inputs;
use super::signals::Asked;

/// The time that a stop waits for peers to confirm that their SAs are gone.
const GOODBYE: Duration = Duration::from_secs(2);
/// The time that a stop takes at most to tell all peers.
const GOODBYE_MAX: Duration = Duration::from_secs(10);
/// The time that a stop waits for updown scripts.
const SCRIPTS_END: Duration = Duration::from_secs(10);

impl Daemon {
    /// Deletes every SA, so that peers need not find out by silence.
    pub(super) async fn say_goodbye(&mut self, inputs: &mut Inputs) {
        let begun = Instant::now();
        let mut end = begun + GOODBYE;
        if self.endpoint.terminate_all(Instant::now()) == 0 {
            return;
        }
        self.flush(Instant::now()).await;
        let goes_on =
            |endpoint: &Endpoint| endpoint.is_ending() || endpoint.states().next().is_some();
        while goes_on(&self.endpoint) && Instant::now() < end {
            let wake = self.endpoint.poll_timeout().map_or(end, |due| due.min(end));
            tokio::select! {
                Some(datagram) = inputs.plane.ike.recv() => self.on_datagram(&datagram, Instant::now()),
                finished = self.job_pool.finished() => self.on_finished(finished, Instant::now()),
                () = tokio::time::sleep_until(wake.into()) => {}
                asked = inputs.signals.asked() => match asked {
                    // A second request to stop ends the gateway at once.
                    Asked::Stop => return,
                    Asked::Reload => {}
                },
            }
            self.tick(Instant::now());
            self.flush(Instant::now()).await;
            if self.endpoint.is_ending() {
                // Not all peers are told yet.
                end = (Instant::now() + GOODBYE).min(begun + GOODBYE_MAX);
            }
        }
    }

    /// Lets the scripts of the SAs that ended with the gateway run, for a bounded time.
    pub(super) async fn finish_scripts(&mut self) {
        let scripts = async {
            while self.updown.is_busy() {
                self.updown.proceed().await;
            }
        };
        if tokio::time::timeout(SCRIPTS_END, scripts).await.is_err() {
            tracing::warn!("the gateway ends before all updown scripts have been called");
        }
    }
}
