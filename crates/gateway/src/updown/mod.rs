//! Updown scripts: an administrator's commands that run when a child SA comes up and when it ends, with strongSwan's
//! `PLUTO_*` variables.
//!
//! The gateway gives up the right to run programs. So a process of its own, the runner, starts before that and keeps the
//! rights of the gateway's start ([`runner`]). It runs only the scripts of the configuration that the gateway has
//! started with. The gateway never waits for a script: calls stand in a queue, and the runner takes one after another.

mod environment;
mod queue;
pub mod runner;

pub use environment::ChildFacts;
pub use queue::{UpdownScripts, runner_if_needed};
