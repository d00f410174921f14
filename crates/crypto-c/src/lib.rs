//! The look-aside interface of the CPU engine for C. Its header is `include/esplanade_crypto.h`.
//!
//! No function trusts a length or a pointer to be non-null: wrong arguments are refused with a status. Overlapping
//! buffers of one call are found and refused too. A pointer that is neither null nor valid cannot be detected.

mod overlap;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use esplanade_crypto::lookaside::{
    AeadAlgorithm, AeadError, AeadKey, EspPacket, Record, open_esp, open_records, seal_esp,
    seal_records,
};
use esplanade_crypto::{JobStatus, KeyContext, Tier, Transform};

use overlap::Outputs;

/// The work is done.
pub const ESPLANADE_OK: i32 = 0;
/// The input is not authentic; the output is zeros.
pub const ESPLANADE_AUTH_FAILED: i32 = 1;
/// The length does not fit the transform or the algorithm; the buffer was not touched.
pub const ESPLANADE_LENGTH: i32 = 2;
/// A null pointer, an unaligned array or a number out of range; nothing was touched.
pub const ESPLANADE_ARGUMENT: i32 = 3;
/// Buffers of the call overlap, and at least one of them would be written; nothing was touched.
pub const ESPLANADE_OVERLAP: i32 = 4;
/// The key is refused: it has the wrong length or is weak.
pub const ESPLANADE_KEY: i32 = 5;
/// No transform has this name.
pub const ESPLANADE_TRANSFORM: i32 = 6;
/// The engine does not give the known answers on this machine and must not be used.
pub const ESPLANADE_SELF_TEST: i32 = 7;
/// An error of the library. The contents of the buffers must not be used.
pub const ESPLANADE_INTERNAL: i32 = 8;

/// AES-GCM with a key of 128 bits. As with all AEADs here, nonces have 12 bytes and tags 16.
pub const ESPLANADE_AES_128_GCM: u32 = 1;
pub const ESPLANADE_AES_192_GCM: u32 = 2;
pub const ESPLANADE_AES_256_GCM: u32 = 3;
pub const ESPLANADE_CHACHA20_POLY1305: u32 = 4;

/// One direction of one security association. Any number of threads may use it at once.
#[allow(non_camel_case_types)]
#[derive(Debug)]
pub struct esplanade_esp_key(KeyContext);

/// An AEAD key. Any number of threads may use it at once.
#[allow(non_camel_case_types)]
#[derive(Debug)]
pub struct esplanade_aead_key(AeadKey);

/// An ESP packet that is sealed or opened in place.
#[allow(non_camel_case_types)]
#[derive(Debug)]
#[repr(C)]
pub struct esplanade_esp_packet {
    pub key: *const esplanade_esp_key,
    /// All 64 bits of the sequence number, with and without ESN.
    pub sequence: u64,
    /// ESP header, IV, payload with trailer, ICV. The caller writes header and IV, for sealing too.
    pub bytes: *mut u8,
    pub len: usize,
    /// The call writes it.
    pub status: i32,
}

/// A text that is sealed or opened with an AEAD. No two records may be sealed with one key and one nonce.
#[allow(non_camel_case_types)]
#[derive(Debug)]
#[repr(C)]
pub struct esplanade_record {
    pub key: *const esplanade_aead_key,
    /// Associated data; may be null if `aad_len` is 0.
    pub aad: *const u8,
    pub aad_len: usize,
    /// The input of `len` bytes; may be null if `len` is 0.
    pub from: *const u8,
    /// The output of `len` bytes: the same buffer, or one that does not overlap it.
    pub to: *mut u8,
    pub len: usize,
    pub nonce: [u8; 12],
    /// Sealing writes the tag, opening reads it.
    pub tag: [u8; 16],
    /// The call writes it.
    pub status: i32,
}

/// Returns the meaning of a status in English. The text is never null and must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn esplanade_status_text(status: i32) -> *const c_char {
    let text = match status {
        ESPLANADE_OK => c"done",
        ESPLANADE_AUTH_FAILED => c"not authentic",
        ESPLANADE_LENGTH => c"the length does not fit",
        ESPLANADE_ARGUMENT => c"a null pointer, an unaligned array or a number out of range",
        ESPLANADE_OVERLAP => c"buffers overlap",
        ESPLANADE_KEY => c"the key is refused",
        ESPLANADE_TRANSFORM => c"no transform has this name",
        ESPLANADE_SELF_TEST => c"the self-test failed",
        ESPLANADE_INTERNAL => c"an error of the library",
        _ => c"unknown status",
    };
    text.as_ptr()
}

/// Returns the instructions that keys are made for: "portable", "aesni" or "avx512". The text is never null and must
/// not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn esplanade_tier() -> *const c_char {
    let name = match Tier::current() {
        Tier::Portable => c"portable",
        Tier::AesNi => c"aesni",
        Tier::Avx512 => c"avx512",
    };
    name.as_ptr()
}

/// Makes a key for the ESP transform of this name, such as "AES_GCM_16_256" or "AES_CBC_128/HMAC_SHA1_96", and puts
/// it into `*out`. The caller frees the key with esplanade_esp_key_free. `material` is the cipher's key, then its
/// salt, then the integrity key. It is copied. `esn` is 0, or any other number for extended sequence numbers.
///
/// # Safety
/// - `transform` is null or points to a string.
/// - `material` is null or points to `material_len` bytes.
/// - `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esplanade_esp_key_new(
    transform: *const c_char,
    esn: u32,
    material: *const u8,
    material_len: usize,
    out: *mut *mut esplanade_esp_key,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller guarantees pointers that are null or valid; null is checked before each use.
        unsafe {
            if transform.is_null() || !writable(out) {
                return Err(ESPLANADE_ARGUMENT);
            }
            *out = std::ptr::null_mut();
            let name = CStr::from_ptr(transform).to_str();
            let material = slice(material, material_len)?;
            let transform = Transform::from_name(name.map_err(|_| ESPLANADE_TRANSFORM)?);
            let transform = transform.ok_or(ESPLANADE_TRANSFORM)?;
            esplanade_crypto::selection().map_err(|_| ESPLANADE_SELF_TEST)?;
            let key = KeyContext::new(transform, esn != 0, material);
            let key = key.map_err(|_| ESPLANADE_KEY)?;
            *out = Box::into_raw(Box::new(esplanade_esp_key(key)));
        }
        Ok(())
    })
}

/// Overwrites and frees a key. `key` may be null.
///
/// # Safety
/// - `key` is null or came from esplanade_esp_key_new.
/// - Nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esplanade_esp_key_free(key: *mut esplanade_esp_key) {
    if !key.is_null() {
        // SAFETY: the caller guarantees that the key came from a box and that nobody uses it any more.
        drop(unsafe { Box::from_raw(key) });
    }
}

/// Makes a key for one of the AEADs and puts it into `*out`. The caller frees the key with esplanade_aead_key_free.
/// `key` is copied.
///
/// # Safety
/// - `key` is null or points to `key_len` bytes.
/// - `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esplanade_aead_key_new(
    algorithm: u32,
    key: *const u8,
    key_len: usize,
    out: *mut *mut esplanade_aead_key,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller guarantees pointers that are null or valid; null is checked before each use.
        unsafe {
            if !writable(out) {
                return Err(ESPLANADE_ARGUMENT);
            }
            *out = std::ptr::null_mut();
            let algorithm = match algorithm {
                ESPLANADE_AES_128_GCM => AeadAlgorithm::Aes128Gcm,
                ESPLANADE_AES_192_GCM => AeadAlgorithm::Aes192Gcm,
                ESPLANADE_AES_256_GCM => AeadAlgorithm::Aes256Gcm,
                ESPLANADE_CHACHA20_POLY1305 => AeadAlgorithm::ChaCha20Poly1305,
                _ => return Err(ESPLANADE_ARGUMENT),
            };
            let key = AeadKey::new(algorithm, slice(key, key_len)?);
            let key = key.map_err(|error| match error {
                AeadError::SelfTest(_) => ESPLANADE_SELF_TEST,
                _ => ESPLANADE_KEY,
            })?;
            *out = Box::into_raw(Box::new(esplanade_aead_key(key)));
        }
        Ok(())
    })
}

/// Overwrites and frees a key. `key` may be null.
///
/// # Safety
/// - `key` is null or came from esplanade_aead_key_new.
/// - Nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esplanade_aead_key_free(key: *mut esplanade_aead_key) {
    if !key.is_null() {
        // SAFETY: the caller guarantees that the key came from a box and that nobody uses it any more.
        drop(unsafe { Box::from_raw(key) });
    }
}

/// Seals `count` packets in place. Returns the first status that is not ESPLANADE_OK.
///
/// # Safety
/// - `packets` is null or points to `count` packets.
/// - The pointers in the packets are null or valid for their lengths.
/// - Nobody else accesses the packets and their bytes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esplanade_esp_seal(
    packets: *mut esplanade_esp_packet,
    count: usize,
) -> i32 {
    // SAFETY: the caller guarantees the packets.
    unsafe { esp(packets, count, seal_esp) }
}

/// Opens `count` packets in place. Returns the first status that is not ESPLANADE_OK. The payload of a packet that is
/// not authentic is zeroed.
///
/// # Safety
/// The obligations are those of esplanade_esp_seal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esplanade_esp_open(
    packets: *mut esplanade_esp_packet,
    count: usize,
) -> i32 {
    // SAFETY: the caller guarantees the packets.
    unsafe { esp(packets, count, open_esp) }
}

/// Seals `count` records. Returns the first status that is not ESPLANADE_OK.
///
/// # Safety
/// - `records` is null or points to `count` records.
/// - The pointers in the records are null or valid for their lengths.
/// - Nobody else accesses the records and their buffers during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esplanade_records_seal(
    records: *mut esplanade_record,
    count: usize,
) -> i32 {
    // SAFETY: the caller guarantees the records.
    unsafe { all_records(records, count, seal_records) }
}

/// Opens `count` records. Returns the first status that is not ESPLANADE_OK. The output of a record that is not
/// authentic is zeroed.
///
/// # Safety
/// The obligations are those of esplanade_records_seal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esplanade_records_open(
    records: *mut esplanade_record,
    count: usize,
) -> i32 {
    // SAFETY: the caller guarantees the records.
    unsafe { all_records(records, count, open_records) }
}

/// Checks the packets' pointers, does `work` on the good packets and sets each status.
///
/// # Safety
/// The obligations are those of esplanade_esp_seal.
unsafe fn esp(
    packets: *mut esplanade_esp_packet,
    count: usize,
    work: fn(&mut [EspPacket<'_>]),
) -> i32 {
    guarded(|| {
        // SAFETY: the caller guarantees an array that is null or valid.
        let packets = unsafe { array(packets, count)? };
        let mut outputs = Outputs::new();
        outputs.add(packets.as_ptr().cast(), size_of_val(packets));
        for packet in &mut *packets {
            packet.status = match packet.key.is_null() || !fits(packet.bytes, packet.len) {
                true => ESPLANADE_ARGUMENT,
                false => ESPLANADE_INTERNAL,
            };
            if packet.status == ESPLANADE_INTERNAL {
                outputs.add(packet.bytes, packet.len);
            }
        }
        if !outputs.are_apart() {
            packets
                .iter_mut()
                .for_each(|p| p.status = ESPLANADE_OVERLAP);
            return Err(ESPLANADE_OVERLAP);
        }
        let mut good = Vec::new();
        for packet in packets
            .iter_mut()
            .filter(|p| p.status == ESPLANADE_INTERNAL)
        {
            // SAFETY: the pointers are not null, and no buffer overlaps another one; the caller guarantees that they
            // are valid.
            let packet_of = unsafe {
                let bytes = slice_mut(packet.bytes, packet.len)?;
                EspPacket::new(&(*packet.key).0, packet.sequence, bytes)
            };
            good.push((packet_of, &mut packet.status));
        }
        let (mut work_of, statuses): (Vec<_>, Vec<_>) = good.into_iter().unzip();
        work(&mut work_of);
        for (packet, status) in work_of.iter().zip(statuses) {
            *status = code(packet.status);
        }
        first(packets.iter().map(|packet| packet.status))
    })
}

/// Checks the records' pointers, does `work` on the good records and sets each status.
///
/// # Safety
/// The obligations are those of esplanade_records_seal.
unsafe fn all_records(
    records: *mut esplanade_record,
    count: usize,
    work: fn(&mut [Record<'_>]),
) -> i32 {
    guarded(|| {
        // SAFETY: the caller guarantees an array that is null or valid.
        let records = unsafe { array(records, count)? };
        let mut outputs = Outputs::new();
        outputs.add(records.as_ptr().cast(), size_of_val(records));
        for record in &mut *records {
            let good = !record.key.is_null()
                && fits(record.aad, record.aad_len)
                && fits(record.from, record.len)
                && fits(record.to, record.len);
            record.status = match good {
                true => ESPLANADE_INTERNAL,
                false => ESPLANADE_ARGUMENT,
            };
            if good {
                outputs.add(record.to, record.len);
            }
        }
        let mut apart = outputs.are_apart();
        for record in records.iter().filter(|r| r.status == ESPLANADE_INTERNAL) {
            let in_place = std::ptr::eq(record.from, record.to);
            apart &= outputs.miss(record.aad, record.aad_len)
                && (in_place || outputs.miss(record.from, record.len));
        }
        if !apart {
            records
                .iter_mut()
                .for_each(|r| r.status = ESPLANADE_OVERLAP);
            return Err(ESPLANADE_OVERLAP);
        }
        let mut good = Vec::new();
        for record in records
            .iter_mut()
            .filter(|r| r.status == ESPLANADE_INTERNAL)
        {
            // SAFETY: no pointer is null, and written buffers overlap nothing else; the caller guarantees that they
            // are valid.
            let made = unsafe {
                let (key, aad) = (&(*record.key).0, slice(record.aad, record.aad_len)?);
                let to = slice_mut(record.to, record.len)?;
                if std::ptr::eq(record.from, record.to) {
                    Record::in_place(key, record.nonce, aad, to)
                } else {
                    Record::apart(key, record.nonce, aad, slice(record.from, record.len)?, to)
                }
            };
            match made {
                Ok(made) => good.push((made.with_tag(record.tag), record)),
                Err(_) => record.status = ESPLANADE_LENGTH,
            }
        }
        let (mut work_of, good): (Vec<_>, Vec<_>) = good.into_iter().unzip();
        work(&mut work_of);
        for (done, record) in work_of.iter().zip(good) {
            record.status = code(done.status());
            record.tag = *done.tag();
        }
        first(records.iter().map(|record| record.status))
    })
}

/// Runs `work` and turns a panic into a status, so that no panic leaves the library.
fn guarded(work: impl FnOnce() -> Result<(), i32>) -> i32 {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => ESPLANADE_OK,
        Ok(Err(status)) => status,
        Err(_) => ESPLANADE_INTERNAL,
    }
}

fn code(status: JobStatus) -> i32 {
    match status {
        JobStatus::Done => ESPLANADE_OK,
        JobStatus::AuthFailed => ESPLANADE_AUTH_FAILED,
        JobStatus::Malformed => ESPLANADE_LENGTH,
        JobStatus::Pending => ESPLANADE_INTERNAL,
    }
}

fn first(mut statuses: impl Iterator<Item = i32>) -> Result<(), i32> {
    statuses
        .find(|&status| status != ESPLANADE_OK)
        .map_or(Ok(()), Err)
}

/// Whether `len` bytes can exist at this address.
fn fits(bytes: *const u8, len: usize) -> bool {
    let in_range = isize::try_from(len).is_ok() && bytes.addr().checked_add(len).is_some();
    in_range && (len == 0 || !bytes.is_null())
}

fn writable<T>(out: *mut T) -> bool {
    !out.is_null() && out.is_aligned()
}

/// Returns the bytes as a slice, or an error if they cannot exist.
///
/// # Safety
/// If `bytes` is not null, `len` bytes from there may be read for `'a`.
unsafe fn slice<'a>(bytes: *const u8, len: usize) -> Result<&'a [u8], i32> {
    match len {
        _ if !fits(bytes, len) => Err(ESPLANADE_ARGUMENT),
        0 => Ok(&[]),
        // SAFETY: `bytes` is not null, and the caller guarantees `len` bytes.
        _ => Ok(unsafe { std::slice::from_raw_parts(bytes, len) }),
    }
}

/// Returns the bytes as a slice, or an error if they cannot exist.
///
/// # Safety
/// If `bytes` is not null, `len` bytes from there may be read and written for `'a`, and nobody else accesses them.
unsafe fn slice_mut<'a>(bytes: *mut u8, len: usize) -> Result<&'a mut [u8], i32> {
    match len {
        _ if !fits(bytes, len) => Err(ESPLANADE_ARGUMENT),
        0 => Ok(&mut []),
        // SAFETY: `bytes` is not null, and the caller guarantees `len` bytes.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(bytes, len) }),
    }
}

/// Returns the array as a slice, or an error if it cannot exist.
///
/// # Safety
/// If `first` is not null, `count` members from there may be read and written for `'a`, and nobody else accesses
/// them.
unsafe fn array<'a, T>(first: *mut T, count: usize) -> Result<&'a mut [T], i32> {
    let bytes = count
        .checked_mul(size_of::<T>())
        .ok_or(ESPLANADE_ARGUMENT)?;
    match count {
        _ if !fits(first.cast(), bytes) || !first.is_aligned() => Err(ESPLANADE_ARGUMENT),
        0 => Ok(&mut []),
        // SAFETY: `first` is aligned and not null, and the caller guarantees `count` members.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(first, count) }),
    }
}
