//! Libraries to compare with: shared objects that offer the table of bench/peers/peer.h.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;

use esplanade_crypto::{Batch, Direction};

use crate::contender::{Contender, Packets};

const ABI: u32 = 1;
/// The most packets in a call.
pub const BATCH_MAX: usize = 512;

#[repr(C)]
struct RawPacket {
    key: *mut c_void,
    esp: *mut u8,
    len: u32,
}

type Run = unsafe extern "C" fn(*const RawPacket, usize) -> usize;

#[repr(C)]
struct RawWay {
    name: *const c_char,
    seal: Run,
    open: Run,
}

#[repr(C)]
struct RawSuite {
    name: *const c_char,
    key_new: unsafe extern "C" fn(*const u8, c_int) -> *mut c_void,
    key_free: unsafe extern "C" fn(*mut c_void),
    ways: *const RawWay,
}

#[repr(C)]
struct RawPeer {
    abi: u32,
    name: *const c_char,
    suites: *const RawSuite,
}

/// A loaded library. It stays loaded.
pub struct Peer {
    pub name: String,
    suites: Vec<(String, &'static RawSuite)>,
}

fn text(name: *const c_char) -> String {
    // SAFETY: the names in the tables are strings that live as long as the library.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}

impl Peer {
    pub fn load(path: &str) -> Result<Self, String> {
        let file = CString::new(path).map_err(|_| format!("{path}: not a path"))?;
        // SAFETY: the argument is a string; the bench trusts the constructors of the library.
        let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            // SAFETY: a call failed just before.
            return Err(text(unsafe { libc::dlerror() }));
        }
        // SAFETY: the arguments are a library and a string.
        let symbol = unsafe { libc::dlsym(library, c"peer".as_ptr()) };
        if symbol.is_null() {
            return Err(format!("{path} has no table of a peer"));
        }
        // SAFETY: peer.h declares the symbol with this type.
        let table = unsafe {
            let table: unsafe extern "C" fn() -> *const RawPeer = std::mem::transmute(symbol);
            table().as_ref()
        };
        let table = table.ok_or(format!("{path} does not run on this machine"))?;
        if table.abi != ABI {
            return Err(format!("{path} is of another version of peer.h"));
        }
        let mut suites = Vec::new();
        let mut next = table.suites;
        // SAFETY: the table ends with a nameless suite and lives as long as the library.
        while let Some(suite) = unsafe { next.as_ref() }.filter(|suite| !suite.name.is_null()) {
            suites.push((text(suite.name), suite));
            next = next.wrapping_add(1);
        }
        let name = text(table.name);
        Ok(Self { name, suites })
    }

    pub fn suite(&self, name: &str) -> Option<Suite> {
        let found = self.suites.iter().find(|(known, _)| known == name);
        found.map(|&(_, raw)| Suite(raw))
    }
}

#[derive(Clone, Copy)]
pub struct Suite(&'static RawSuite);

impl Suite {
    /// The library's interfaces to this suite.
    pub fn ways(self) -> Vec<Way> {
        let mut ways = Vec::new();
        let mut next = self.0.ways;
        // SAFETY: the table ends with a nameless interface and lives as long as the library.
        while let Some(way) = unsafe { next.as_ref() }.filter(|way| !way.name.is_null()) {
            ways.push(Way(way));
            next = next.wrapping_add(1);
        }
        ways
    }

    /// Makes a key. `material` must have the transform's length.
    pub fn key(self, material: &[u8], direction: Direction) -> Option<Key> {
        let open = c_int::from(direction == Direction::Open);
        // SAFETY: the library reads as many bytes as the suite of this name needs.
        let key = unsafe { (self.0.key_new)(material.as_ptr(), open) };
        let key = NonNull::new(key)?;
        let free = self.0.key_free;
        Some(Key { key, free })
    }
}

#[derive(Clone, Copy)]
pub struct Way(&'static RawWay);

impl Way {
    pub fn name(self) -> String {
        text(self.0.name)
    }
}

pub struct Key {
    key: NonNull<c_void>,
    free: unsafe extern "C" fn(*mut c_void),
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the same library made the key, and it is freed once.
        unsafe { (self.free)(self.key.as_ptr()) }
    }
}

/// One interface of a peer, with keys for one direction.
pub struct PeerContender<'a> {
    name: String,
    way: Way,
    direction: Direction,
    keys: &'a [Key],
    packets: Vec<RawPacket>,
}

impl<'a> PeerContender<'a> {
    pub fn new(peer: &Peer, way: Way, direction: Direction, keys: &'a [Key]) -> Self {
        Self {
            name: peer.name.clone(),
            way,
            direction,
            keys,
            packets: Vec::with_capacity(BATCH_MAX),
        }
    }
}

impl Contender for PeerContender<'_> {
    fn name(&self) -> (String, String) {
        (self.name.clone(), self.way.name())
    }

    fn set_up(&mut self, packets: &Packets, batch: &mut Batch) {
        assert!(packets.len() <= BATCH_MAX);
        self.packets.clear();
        for packet in packets {
            let esp = &mut batch.buffer[packet.at as usize..][..packet.len as usize];
            self.packets.push(RawPacket {
                key: self.keys[packet.key as usize].key.as_ptr(),
                esp: esp.as_mut_ptr(),
                len: packet.len,
            });
        }
    }

    fn run(&mut self, _: &mut Batch) -> usize {
        let run = match self.direction {
            Direction::Seal => self.way.0.seal,
            Direction::Open => self.way.0.open,
        };
        // SAFETY: `set_up` took the addresses from the batch that this call borrows; the keys outlive `self`.
        unsafe { run(self.packets.as_ptr(), self.packets.len()) }
    }
}
