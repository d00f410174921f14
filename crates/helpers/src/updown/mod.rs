//! Updown scripts: an administrator's commands that run when a child SA comes up and when it ends, with strongSwan's
//! `PLUTO_*` variables.
//!
//! The gateway gives up the right to run programs. So a process of its own, the runner, starts before that and keeps the
//! rights of the gateway's start ([`runner`]). Another process starts the runner again where it has ended ([`keeper`]).
//! The runner runs only the scripts of the configuration that the gateway has started with. The gateway never waits for
//! a script: calls are due (`book`), and connections take turns.

mod book;
mod environment;
pub mod keeper;
mod message;
pub mod runner;
mod script;
mod scripts;
mod turns;

pub use book::CallsRefused;
pub use environment::ChildFacts;
pub use scripts::{ChildCalls, UpdownScripts, runner_if_needed};
