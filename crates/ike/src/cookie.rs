//! Cookies: under load IKE_SA_INIT keeps no state until the sender has proved its address (RFC 7296 §2.6).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use aws_lc_rs::{constant_time, hmac};

use crate::host::Random;

const SECRET_LIFETIME: Duration = Duration::from_secs(60);
const TAG_LEN: usize = 32;

/// A cookie is `<version> | HMAC(secret, Ni | IPi | SPIi)`. The secret is replaced every minute, and the one before
/// it is still accepted.
pub(crate) struct Cookies {
    version: u8,
    current: hmac::Key,
    previous: Option<hmac::Key>,
    replace_at: Instant,
}

fn new_key(random: &mut dyn Random) -> hmac::Key {
    let mut secret = zeroize::Zeroizing::new([0; 32]);
    random.fill(&mut *secret);
    hmac::Key::new(hmac::HMAC_SHA256, &*secret)
}

fn tag(key: &hmac::Key, nonce: &[u8], address: IpAddr, spi: u64) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    // The lengths tell the fields of variable length apart.
    context.update(&[
        u8::try_from(nonce.len()).unwrap_or(0),
        u8::from(address.is_ipv4()),
    ]);
    context.update(nonce);
    match address {
        IpAddr::V4(address) => context.update(&address.octets()),
        IpAddr::V6(address) => context.update(&address.octets()),
    }
    context.update(&spi.to_be_bytes());
    context.sign()
}

impl Cookies {
    pub(crate) fn new(now: Instant, random: &mut dyn Random) -> Self {
        Self {
            version: 0,
            current: new_key(random),
            previous: None,
            replace_at: now + SECRET_LIFETIME,
        }
    }

    pub(crate) fn make(
        &mut self,
        now: Instant,
        random: &mut dyn Random,
        nonce: &[u8],
        address: IpAddr,
        spi: u64,
    ) -> Vec<u8> {
        self.rotate(now, random);
        let mut cookie = vec![self.version];
        cookie.extend_from_slice(tag(&self.current, nonce, address, spi).as_ref());
        cookie
    }

    pub(crate) fn verify(
        &mut self,
        now: Instant,
        random: &mut dyn Random,
        cookie: &[u8],
        nonce: &[u8],
        address: IpAddr,
        spi: u64,
    ) -> bool {
        self.rotate(now, random);
        let Some((&version, rest)) = cookie.split_first() else {
            return false;
        };
        let key = if version == self.version {
            &self.current
        } else if version == self.version.wrapping_sub(1) {
            match &self.previous {
                Some(key) => key,
                None => return false,
            }
        } else {
            return false;
        };
        rest.len() == TAG_LEN
            && constant_time::verify_slices_are_equal(rest, tag(key, nonce, address, spi).as_ref())
                .is_ok()
    }

    fn rotate(&mut self, now: Instant, random: &mut dyn Random) {
        if now < self.replace_at {
            return;
        }
        let old = std::mem::replace(&mut self.current, new_key(random));
        self.previous = (now < self.replace_at + SECRET_LIFETIME).then_some(old);
        self.version = self.version.wrapping_add(1);
        self.replace_at = now + SECRET_LIFETIME;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::SystemRandom;

    // RFC 7296 R84, R87
    #[test]
    fn a_cookie_is_good_for_its_sender_and_two_secrets() {
        let start = Instant::now();
        let random = &mut SystemRandom;
        let mut cookies = Cookies::new(start, random);
        let (a, b): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        let nonce = [7; 32];
        let cookie = cookies.make(start, random, &nonce, a, 1);
        assert!(cookie.len() <= 64, "RFC 7296 section 2.6");
        assert!(cookies.verify(start, random, &cookie, &nonce, a, 1));
        assert!(!cookies.verify(start, random, &cookie, &nonce, b, 1));
        let near_a = "192.0.2.2".parse().unwrap();
        assert!(!cookies.verify(start, random, &cookie, &nonce, near_a, 1));
        assert!(!cookies.verify(start, random, &cookie, &nonce, a, 2));
        assert!(!cookies.verify(start, random, &cookie, &[8; 32], a, 1));
        assert!(!cookies.verify(start, random, &[], &nonce, a, 1));
        assert!(!cookies.verify(start, random, &cookie[..20], &nonce, a, 1));
        let later = start + SECRET_LIFETIME;
        assert!(cookies.verify(later, random, &cookie, &nonce, a, 1));
        assert!(!cookies.verify(later + SECRET_LIFETIME, random, &cookie, &nonce, a, 1));
        let other = cookies.make(later + SECRET_LIFETIME, random, &nonce, a, 1);
        assert!(
            !cookies.verify(later + 10 * SECRET_LIFETIME, random, &other, &nonce, a, 1),
            "long idle"
        );
    }
}
