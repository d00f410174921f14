//! The process of one PKCS#11 module: it loads the module, and signs with the keys of its tokens.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{self, MechanismType};
use cryptoki::object::{Attribute, AttributeType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::RawAuthPin;
use esplanade_host::{confine, helper_process};
use esplanade_tokens::TokenPlace;
use esplanade_tokens::message::{
    CONTENT_MAX, Mechanism, SentPin, TokenOutcome, TokenReply, TokenRequest, TokenTask,
};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::lines::{WipedLines, write_line};

/// The hidden command of `esplanade` that is the process.
pub const COMMAND: &str = "token-module";

/// Serves the keeper until it closes the socket. `socket` is the standard input. All requests name the same module.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    confine::keeping()?;
    // A module that stands still does not outlive the keeper.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut socket = UnixStream::from(socket);
    // The keeper may have ended before it was watched.
    if helper_process::closes_within(&socket, Duration::ZERO) {
        return Ok(());
    }
    let mut lines = WipedLines::new(socket.try_clone()?);
    let mut module = LoadedModule::default();
    while let Some(request) = lines.next::<TokenRequest>()? {
        let id = request.id;
        let outcome = module.answer(request);
        write_line(&mut socket, &TokenReply { id, outcome })?;
    }
    Ok(())
}

#[derive(Default)]
struct LoadedModule {
    context: Option<Pkcs11>,
    /// A session of each token. A login lasts as long as the session.
    sessions: HashMap<Slot, TokenSession>,
}

struct TokenSession {
    session: Session,
    /// The PIN was accepted, or none is wanted.
    open: bool,
}

/// The reason why a request was not carried out.
enum Why {
    PinNeeded,
    PinRefused(Error),
    Other(String),
}

impl From<Error> for Why {
    fn from(error: Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl LoadedModule {
    fn answer(&mut self, request: TokenRequest) -> TokenOutcome {
        let TokenRequest { place, task, .. } = request;
        let mut done = self.carry_out(&place, &task);
        if let Err(Why::Other(_)) = done
            && self.context.is_some()
        {
            // A token that was away is found by a new start of the module. A PIN is not tried twice.
            let was_open = self.close();
            if was_open || !matches!(task, TokenTask::Sign { pin: Some(_), .. }) {
                done = self.carry_out(&place, &task);
            }
        }
        match done {
            Ok(content) => TokenOutcome::Done(content),
            Err(Why::PinNeeded) => TokenOutcome::PinNeeded,
            Err(Why::PinRefused(error)) => TokenOutcome::PinRefused(error.to_string()),
            Err(Why::Other(why)) => {
                self.close();
                TokenOutcome::failed(why)
            }
        }
    }

    /// Ends all sessions. Returns whether a token was open.
    fn close(&mut self) -> bool {
        let was_open = self.sessions.values().any(|one| one.open);
        self.sessions.clear();
        if let Some(context) = self.context.take() {
            // There is nothing to do about a module that does not end well.
            let _ = context.finalize();
        }
        was_open
    }

    fn carry_out(&mut self, place: &TokenPlace, task: &TokenTask) -> Result<Vec<u8>, Why> {
        let context = match &self.context {
            Some(context) => context.clone(),
            None => self.context.insert(load(&place.module)?).clone(),
        };
        let slot = find_slot(&context, place)?;
        let token = match self.sessions.entry(slot) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let session = context.open_ro_session(slot)?;
                let open = !context.get_token_info(slot)?.login_required();
                place.insert(TokenSession { session, open })
            }
        };
        let content = match task {
            TokenTask::Certificate => certificate(&token.session, &place.handle)?,
            TokenTask::Sign {
                mechanism,
                input,
                pin,
            } => {
                token.open_with(pin.as_ref())?;
                let key = object(&token.session, ObjectClass::PRIVATE_KEY, &place.handle)?;
                let key = key.ok_or_else(|| missing("private key", &place.handle))?;
                token.session.sign(&of(*mechanism), key, input)?
            }
        };
        match content.len() <= CONTENT_MAX {
            true => Ok(content),
            false => Err(Why::Other("the object is too long".to_owned())),
        }
    }
}

impl TokenSession {
    fn open_with(&mut self, pin: Option<&SentPin>) -> Result<(), Why> {
        if self.open {
            return Ok(());
        }
        let pin = pin.ok_or(Why::PinNeeded)?;
        // The library wipes the copy when it drops it.
        let raw = RawAuthPin::new(Box::new(pin.0.clone()));
        match self.session.login_with_raw(UserType::User, &raw) {
            Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => {}
            Err(Error::Pkcs11(
                RvError::DeviceRemoved
                | RvError::TokenNotPresent
                | RvError::SessionHandleInvalid
                | RvError::SessionClosed,
                _,
            )) => return Err(Why::Other("the token is gone".to_owned())),
            // Whatever the reason is, another try can lock the token.
            Err(error) => return Err(Why::PinRefused(error)),
        }
        self.open = true;
        Ok(())
    }
}

fn load(path: &Path) -> Result<Pkcs11, Why> {
    let failed = |error: Error| Why::Other(format!("the module cannot be loaded: {error}"));
    let context = Pkcs11::new(path).map_err(failed)?;
    let flags = CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK);
    context.initialize(flags).map_err(failed)?;
    Ok(context)
}

/// Finds the slot of an object. Where none is named, and there are several tokens, objects that need no PIN tell.
fn find_slot(context: &Pkcs11, place: &TokenPlace) -> Result<Slot, Why> {
    let slots = context.get_slots_with_initialized_token()?;
    if let Some(number) = place.slot {
        let mut slots = slots.into_iter();
        let found = slots.find(|slot| slot.id() == number);
        return found.ok_or_else(|| Why::Other(format!("there is no token in slot {number}")));
    }
    if let [only] = slots[..] {
        return Ok(only);
    }
    for slot in &slots {
        let session = context.open_ro_session(*slot)?;
        for class in [ObjectClass::CERTIFICATE, ObjectClass::PUBLIC_KEY] {
            if object(&session, class, &place.handle)?.is_some() {
                return Ok(*slot);
            }
        }
    }
    Err(Why::Other(match slots.is_empty() {
        true => "there is no token".to_owned(),
        false => "several tokens are there: name the `slot`".to_owned(),
    }))
}

fn object(
    session: &Session,
    class: ObjectClass,
    handle: &[u8],
) -> Result<Option<ObjectHandle>, Error> {
    let template = [Attribute::Class(class), Attribute::Id(handle.to_vec())];
    Ok(session.find_objects(&template)?.into_iter().next())
}

fn certificate(session: &Session, handle: &[u8]) -> Result<Vec<u8>, Why> {
    let found = object(session, ObjectClass::CERTIFICATE, handle)?;
    let found = found.ok_or_else(|| missing("certificate", handle))?;
    let attributes = session.get_attributes(found, &[AttributeType::Value])?;
    let content = attributes
        .into_iter()
        .find_map(|attribute| match attribute {
            Attribute::Value(value) => Some(value),
            _ => None,
        });
    content.ok_or_else(|| Why::Other("the certificate has no content".to_owned()))
}

fn missing(what: &str, handle: &[u8]) -> Why {
    let digits: String = handle.iter().map(|byte| format!("{byte:02x}")).collect();
    Why::Other(format!("the token has no {what} with the handle {digits}"))
}

fn of(mechanism: Mechanism) -> mechanism::Mechanism<'static> {
    let pss = |hash_alg, mgf, len: u8| {
        mechanism::Mechanism::RsaPkcsPss(PkcsPssParams {
            hash_alg,
            mgf,
            s_len: u64::from(len).into(),
        })
    };
    match mechanism {
        Mechanism::RsaPkcs1 => mechanism::Mechanism::RsaPkcs,
        Mechanism::RsaPssSha256 => pss(MechanismType::SHA256, PkcsMgfType::MGF1_SHA256, 32),
        Mechanism::RsaPssSha384 => pss(MechanismType::SHA384, PkcsMgfType::MGF1_SHA384, 48),
        Mechanism::RsaPssSha512 => pss(MechanismType::SHA512, PkcsMgfType::MGF1_SHA512, 64),
        Mechanism::Ecdsa => mechanism::Mechanism::Ecdsa,
        Mechanism::Ed25519 => {
            mechanism::Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519))
        }
    }
}
