//! The MODP groups. In those of RFC 3526 and RFC 7296 §B.2, p is a safe prime and the generator is 2. In those of
//! RFC 5114 the generator spans a small subgroup, and a public value outside of it is refused.

use std::ffi::CStr;
use std::ptr::NonNull;

use aws_lc_sys as lc;
use zeroize::Zeroize;

use super::parameters::{self, SubgroupParameters};
use super::public_len;
use crate::iana::Group;
use crate::secret::Secret;

/// Length of a private exponent: 512 bits, more than twice the strength of the largest group. With a safe prime, a
/// short exponent loses no security (RFC 3526 §8). The orders of the small subgroups are shorter.
const EXPONENT_LEN: usize = 64;
const GENERATOR: [u8; 1] = [2];

const fn subgroup(group: Group) -> Option<&'static SubgroupParameters> {
    match group {
        Group::Modp1024Subgroup160 => Some(&parameters::MODP_1024_160),
        Group::Modp2048Subgroup224 => Some(&parameters::MODP_2048_224),
        Group::Modp2048Subgroup256 => Some(&parameters::MODP_2048_256),
        _ => None,
    }
}

/// A BIGNUM that is erased when it is freed.
struct Bignum(NonNull<lc::BIGNUM>);

impl Bignum {
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // SAFETY: the pointer is valid for `bytes.len()` bytes, and a null result argument asks for a new number.
        let number = unsafe { lc::BN_bin2bn(bytes.as_ptr(), bytes.len(), std::ptr::null_mut()) };
        NonNull::new(number).map(Self)
    }

    fn new() -> Option<Self> {
        // SAFETY: the call has no preconditions.
        NonNull::new(unsafe { lc::BN_new() }).map(Self)
    }

    fn from_hex(digits: &CStr) -> Option<Self> {
        let mut number = std::ptr::null_mut();
        // SAFETY: the text ends with a zero byte, and a pointer that is null asks for a new number.
        unsafe { lc::BN_hex2bn(&mut number, digits.as_ptr()) };
        NonNull::new(number).map(Self)
    }

    fn modulus(group: Group) -> Option<Self> {
        if let Some(subgroup) = subgroup(group) {
            return Self::from_hex(subgroup.prime);
        }
        // SAFETY: with a null argument each call allocates a new number.
        let number = unsafe {
            match group {
                Group::Modp1024 => return Self::from_hex(parameters::MODP_1024),
                Group::Modp1536 => lc::BN_get_rfc3526_prime_1536(std::ptr::null_mut()),
                Group::Modp2048 => lc::BN_get_rfc3526_prime_2048(std::ptr::null_mut()),
                Group::Modp3072 => lc::BN_get_rfc3526_prime_3072(std::ptr::null_mut()),
                Group::Modp4096 => lc::BN_get_rfc3526_prime_4096(std::ptr::null_mut()),
                Group::Modp6144 => lc::BN_get_rfc3526_prime_6144(std::ptr::null_mut()),
                Group::Modp8192 => lc::BN_get_rfc3526_prime_8192(std::ptr::null_mut()),
                _ => return None,
            }
        };
        NonNull::new(number).map(Self)
    }

    fn generator(group: Group) -> Option<Self> {
        match subgroup(group) {
            Some(subgroup) => Self::from_hex(subgroup.generator),
            None => Self::from_bytes(&GENERATOR),
        }
    }

    fn as_ptr(&self) -> *const lc::BIGNUM {
        self.0.as_ptr()
    }

    /// Big-endian bytes, padded with zeros to `len`. No branch depends on the value.
    fn to_bytes(&self, len: usize) -> Option<Secret> {
        let mut bytes = vec![0; len];
        // SAFETY: `bytes` is writable for `len` bytes, and the number is initialised.
        let written = unsafe { lc::BN_bn2bin_padded(bytes.as_mut_ptr(), len, self.as_ptr()) };
        (written == 1).then(|| Secret::from(bytes))
    }
}

impl Drop for Bignum {
    fn drop(&mut self) {
        // SAFETY: we own the number, and nothing refers to it any more.
        unsafe { lc::BN_clear_free(self.0.as_ptr()) }
    }
}

/// A modulus with its Montgomery form and temporary numbers.
struct ModpField {
    modulus: Bignum,
    context: NonNull<lc::BN_CTX>,
    montgomery: NonNull<lc::BN_MONT_CTX>,
}

impl ModpField {
    fn new(group: Group) -> Option<Self> {
        let modulus = Bignum::modulus(group)?;
        // SAFETY: the call has no preconditions.
        let context = NonNull::new(unsafe { lc::BN_CTX_new() })?;
        // SAFETY: the modulus, which is odd and positive, and the context are initialised.
        let montgomery = NonNull::new(unsafe {
            lc::BN_MONT_CTX_new_for_modulus(modulus.as_ptr(), context.as_ptr())
        });
        let Some(montgomery) = montgomery else {
            // SAFETY: we own the context.
            unsafe { lc::BN_CTX_free(context.as_ptr()) };
            return None;
        };
        Some(Self {
            modulus,
            context,
            montgomery,
        })
    }

    /// Computes `base ^ exponent mod p` in a time that does not depend on the exponent's value.
    fn power(&self, base: &Bignum, exponent: &Bignum) -> Option<Bignum> {
        let result = Bignum::new()?;
        // SAFETY: all numbers are initialised, the Montgomery form belongs to the modulus, and base < p: the base was
        // checked or is the generator.
        let ok = unsafe {
            lc::BN_mod_exp_mont_consttime(
                result.0.as_ptr(),
                base.as_ptr(),
                exponent.as_ptr(),
                self.modulus.as_ptr(),
                self.context.as_ptr(),
                self.montgomery.as_ptr(),
            )
        };
        (ok == 1).then_some(result)
    }
}

impl Drop for ModpField {
    fn drop(&mut self) {
        // SAFETY: we own both, and nothing refers to them any more.
        unsafe {
            lc::BN_MONT_CTX_free(self.montgomery.as_ptr());
            lc::BN_CTX_free(self.context.as_ptr());
        }
    }
}

/// Returns true if 1 < y < p - 1. The value is public, so the comparison need not take constant time.
pub(super) fn is_valid_public(group: Group, public: &[u8]) -> bool {
    let (Some(modulus), Some(y)) = (Bignum::modulus(group), Bignum::from_bytes(public)) else {
        return false;
    };
    let (Some(one), Some(limit)) = (Bignum::from_bytes(&[1]), Bignum::new()) else {
        return false;
    };
    // SAFETY: all numbers are initialised.
    let ok = unsafe { lc::BN_sub(limit.0.as_ptr(), modulus.as_ptr(), one.as_ptr()) };
    if ok != 1 {
        return false;
    }
    // SAFETY: all numbers are initialised.
    unsafe {
        lc::BN_cmp(y.as_ptr(), one.as_ptr()) > 0 && lc::BN_cmp(y.as_ptr(), limit.as_ptr()) < 0
    }
}

/// Makes a private exponent. Its top bit is set, so that all exponents have one length.
pub(super) fn generate() -> Option<Secret> {
    let mut exponent = [0; EXPONENT_LEN];
    crate::random::fill(&mut exponent).ok()?;
    exponent[0] |= 0x80;
    let secret = Secret::from(exponent.as_slice());
    exponent.zeroize();
    Some(secret)
}

pub(super) fn public(group: Group, private: &Secret) -> Option<Vec<u8>> {
    let field = ModpField::new(group)?;
    let generator = Bignum::generator(group)?;
    let exponent = Bignum::from_bytes(private.expose())?;
    let public = field.power(&generator, &exponent)?;
    Some(public.to_bytes(public_len(group))?.expose().to_vec())
}

pub(super) fn agree(group: Group, private: &Secret, peer_public: &[u8]) -> Option<Secret> {
    if !is_valid_public(group, peer_public) {
        return None;
    }
    let field = ModpField::new(group)?;
    let y = Bignum::from_bytes(peer_public)?;
    if let Some(subgroup) = subgroup(group) {
        // RFC 6989 §2.2: a value outside of the subgroup would tell a part of the exponent.
        let order = Bignum::from_hex(subgroup.order)?;
        let one = Bignum::from_bytes(&[1])?;
        let power = field.power(&y, &order)?;
        // SAFETY: both numbers are initialised.
        if unsafe { lc::BN_cmp(power.as_ptr(), one.as_ptr()) } != 0 {
            return None;
        }
    }
    let exponent = Bignum::from_bytes(private.expose())?;
    field.power(&y, &exponent)?.to_bytes(public_len(group))
}

#[cfg(feature = "generators")]
pub(crate) fn modulus(group: Group) -> Option<Vec<u8>> {
    let bytes = Bignum::modulus(group)?.to_bytes(public_len(group))?;
    Some(bytes.expose().to_vec())
}
