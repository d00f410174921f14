//! The devices in front of the data plane that a gateway can have.

use std::sync::{Mutex, PoisonError};

use esplanade_config::{
    EngineEntry, EngineKind, EnginePlace, GatewayConfig, NameTaken, add_engine,
};
use esplanade_engines::StartError;

use super::front::Front;

/// Opens a device, if the configuration names it.
pub type OpenDevice = fn(&GatewayConfig) -> Result<Option<Front>, StartError>;

static BUILT_IN: &[OpenDevice] = &[
    #[cfg(esp_core_simulated)]
    super::core::open_simulated,
];
static ADDED: Mutex<Vec<OpenDevice>> = Mutex::new(Vec::new());

/// Adds a device to those that configurations can name. It is to be called before a configuration is read.
pub fn add_device(entry: &'static EngineEntry, open: OpenDevice) -> Result<(), NameTaken> {
    add_engine(entry)?;
    let mut added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    added.push(open);
    Ok(())
}

/// Opens the device that is to stand in front of the first worker, if the configuration names one.
pub fn open_device(config: &GatewayConfig) -> Result<Option<Front>, StartError> {
    let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for open in BUILT_IN.iter().chain(&added) {
        if let Some(front) = open(config)? {
            return Ok(Some(front));
        }
    }
    match config.engine.place() {
        EnginePlace::Front => Err(not_opened(config.engine)),
        _ => Ok(None),
    }
}

fn not_opened(engine: EngineKind) -> StartError {
    StartError::new(format!("the device {} has not been opened", engine.name()))
}
