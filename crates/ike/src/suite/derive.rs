//! PRF, prf+ and the keys of an IKE SA and its children (RFC 7296 §2.13 to §2.18).

use std::net::SocketAddr;

use aws_lc_rs::{digest, hmac};
use esplanade_crypto::aes_prf::AesPrf;
use esplanade_crypto::iana::Prf;
use esplanade_crypto::sk::{self, SkKey};

use super::{Opener, Role, Sealer, Secret, Suite};
use crate::wire::Id;

/// RFC 7296 §2.15.
const KEY_PAD: &[u8] = b"Key Pad for IKEv2";

/// Length of the key and of the output of the AES PRFs.
const AES_LEN: usize = 16;

/// The length of the PRF's output. SK_d, SK_pi and SK_pr have this length (RFC 7296 §2.14).
const fn prf_len(prf: Prf) -> usize {
    match prf {
        Prf::Aes128Xcbc | Prf::Aes128Cmac => AES_LEN,
        Prf::HmacSha1 => 20,
        Prf::HmacSha2_256 => 32,
        Prf::HmacSha2_384 => 48,
        Prf::HmacSha2_512 => 64,
    }
}

/// A PRF with its key. It lives on the stack, for one computation.
#[expect(clippy::large_enum_variant)]
enum KeyedPrf {
    Hmac(hmac::Key),
    Aes(AesPrf),
}

impl KeyedPrf {
    fn new(prf: Prf, key: &[u8]) -> Self {
        let hmac = |algorithm| Self::Hmac(hmac::Key::new(algorithm, key));
        match prf {
            Prf::HmacSha1 => hmac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            Prf::HmacSha2_256 => hmac(hmac::HMAC_SHA256),
            Prf::HmacSha2_384 => hmac(hmac::HMAC_SHA384),
            Prf::HmacSha2_512 => hmac(hmac::HMAC_SHA512),
            Prf::Aes128Xcbc => Self::Aes(AesPrf::xcbc(key)),
            Prf::Aes128Cmac => Self::Aes(AesPrf::cmac(key)),
        }
    }

    fn compute(&self, data: &[&[u8]]) -> Secret {
        match self {
            Self::Hmac(key) => {
                let mut context = hmac::Context::with_key(key);
                data.iter().for_each(|part| context.update(part));
                Secret::from(context.sign().as_ref())
            }
            Self::Aes(key) => key.compute(&joined(data)),
        }
    }
}

/// The parts one after the other. They can be secret.
fn joined(parts: &[&[u8]]) -> Secret {
    let mut all = Secret::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| all.extend(part));
    all
}

/// `prf(key, data)`. The data is given in parts.
pub fn prf(prf: Prf, key: &[u8], data: &[&[u8]]) -> Secret {
    KeyedPrf::new(prf, key).compute(data)
}

/// Returns `len` bytes of `prf+(key, seed)` (RFC 7296 §2.13). Returns `None` if `len` is more than the 255 blocks of
/// prf+.
pub fn prf_plus(prf: Prf, key: &[u8], seed: &Secret, len: usize) -> Option<Secret> {
    let key = KeyedPrf::new(prf, key);
    let blocks = u8::try_from(len.div_ceil(prf_len(prf))).ok()?;
    let mut out = Secret::with_capacity(usize::from(blocks) * prf_len(prf));
    let mut previous = Secret::default();
    for counter in 1..=blocks {
        previous = key.compute(&[previous.expose(), seed.expose(), &[counter]]);
        out.extend(previous.expose());
    }
    out.truncate(len);
    Some(out)
}

/// The data of NAT_DETECTION_SOURCE_IP and NAT_DETECTION_DESTINATION_IP (RFC 7296 §2.23). The RFC prescribes SHA-1,
/// and the hash authenticates nothing.
pub fn nat_detection_hash(initiator_spi: u64, responder_spi: u64, address: SocketAddr) -> [u8; 20] {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(&initiator_spi.to_be_bytes());
    context.update(&responder_spi.to_be_bytes());
    match address.ip().to_canonical() {
        std::net::IpAddr::V4(ip) => context.update(&ip.octets()),
        std::net::IpAddr::V6(ip) => context.update(&ip.octets()),
    }
    context.update(&address.port().to_be_bytes());
    let mut hash = [0; 20];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// The nonces of an exchange. The initiator is the end that began this exchange.
#[derive(Clone, Copy, Debug)]
pub struct Nonces<'a> {
    pub initiator: &'a [u8],
    pub responder: &'a [u8],
}

/// Returns the octets that an end signs instead of its own first message if both ends have announced
/// IKE_SA_INIT_FULL_TRANSCRIPT_AUTH (draft-ietf-ipsecme-ikev2-downgrade-prevention): both messages of IKE_SA_INIT, the
/// own one last. No message begins with the zero prefix, because no initiator's SPI is zero.
pub fn full_transcript(others: &[u8], own: &[u8]) -> Vec<u8> {
    const ZERO_PREFIX: [u8; 8] = [0; 8];
    [&ZERO_PREFIX, others, own].concat()
}

/// SK_d, SK_ai, SK_ar, SK_ei, SK_er, SK_pi and SK_pr of one IKE SA.
#[derive(Debug)]
pub struct IkeSaKeys {
    suite: Suite,
    /// One behind the other, in this order.
    all: Secret,
}

/// The place of a key among those of an IKE SA. Of two, the initiator's comes first.
const SK_D: usize = 0;
const SK_A: usize = 1;
const SK_E: usize = 3;
const SK_P: usize = 5;

/// The lengths of the keys.
fn key_lens(suite: &Suite) -> [usize; 7] {
    let (e_len, a_len) = sk::key_lens(suite.encryption, suite.key_bits, suite.integrity);
    let p_len = prf_len(suite.prf);
    [p_len, a_len, a_len, e_len, e_len, p_len, p_len]
}

impl IkeSaKeys {
    /// The keys after IKE_SA_INIT (RFC 7296 §2.14).
    pub fn derive(
        suite: Suite,
        shared: &Secret,
        nonces: Nonces<'_>,
        initiator_spi: u64,
        responder_spi: u64,
    ) -> Self {
        let key = match suite.prf {
            // RFC 7296 §2.14: the key has a fixed length. Each nonce gives half of it.
            Prf::Aes128Xcbc | Prf::Aes128Cmac => {
                let half =
                    |nonce: &[u8]| nonce.iter().take(AES_LEN / 2).copied().collect::<Vec<_>>();
                [half(nonces.initiator), half(nonces.responder)].concat()
            }
            _ => [nonces.initiator, nonces.responder].concat(),
        };
        let skeyseed = prf(suite.prf, &key, &[shared.expose()]);
        Self::expand(suite, &skeyseed, nonces, initiator_spi, responder_spi)
    }

    /// The keys of the IKE SA that replaces this one (RFC 7296 §2.18). `suite` is that of the new SA. The PRF of the
    /// old SA makes SKEYSEED.
    pub fn rekey(
        &self,
        suite: Suite,
        shared: &Secret,
        nonces: Nonces<'_>,
        initiator_spi: u64,
        responder_spi: u64,
    ) -> Self {
        let data = [shared.expose(), nonces.initiator, nonces.responder];
        let skeyseed = prf(self.suite.prf, self.d(), &data);
        Self::expand(suite, &skeyseed, nonces, initiator_spi, responder_spi)
    }

    fn expand(
        suite: Suite,
        skeyseed: &Secret,
        nonces: Nonces<'_>,
        initiator_spi: u64,
        responder_spi: u64,
    ) -> Self {
        let seed = [
            nonces.initiator,
            nonces.responder,
            &initiator_spi.to_be_bytes(),
            &responder_spi.to_be_bytes(),
        ];
        let seed = Secret::from(seed.concat());
        let len = key_lens(&suite).iter().sum();
        let all = prf_plus(suite.prf, skeyseed.expose(), &seed, len)
            .expect("no suite needs more than 16 of the 255 blocks");
        Self { suite, all }
    }

    fn key(&self, place: usize) -> &[u8] {
        let lens = key_lens(&self.suite);
        let from = lens.iter().take(place).sum::<usize>();
        let len = lens.get(place).copied().unwrap_or_default();
        let key = self.all.expose().get(from..from + len);
        key.expect("the lengths add up")
    }

    fn of(&self, role: Role, first: usize) -> &[u8] {
        match role {
            Role::Initiator => self.key(first),
            Role::Responder => self.key(first + 1),
        }
    }

    pub(super) fn d(&self) -> &[u8] {
        self.key(SK_D)
    }

    pub(super) fn p(&self, role: Role) -> &[u8] {
        self.of(role, SK_P)
    }

    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Returns KEYMAT for a child SA (RFC 7296 §2.17), with the shared secret of the exchange, if it had a KE payload.
    /// The first half is for traffic from the exchange's initiator to its responder. Returns `None` if `len` is more
    /// than prf+ can give.
    pub fn child_keymat(
        &self,
        shared: Option<&Secret>,
        nonces: Nonces<'_>,
        len: usize,
    ) -> Option<Secret> {
        let shared = shared.map_or(&[][..], Secret::expose);
        // The seed contains the secret, so that it is kept in zeroising memory.
        let seed = joined(&[shared, nonces.initiator, nonces.responder]);
        prf_plus(self.suite.prf, self.d(), &seed, len)
    }

    /// Returns the octets that the end with this role signs (RFC 7296 §2.15): its first message, the other end's nonce,
    /// and `prf(SK_p, RestOfIDPayload)`. `message` is the datagram that was sent, without the non-ESP marker, or the
    /// [`full_transcript`].
    pub fn signed_octets(
        &self,
        signer: Role,
        message: &[u8],
        peer_nonce: &[u8],
        id: &Id,
    ) -> Vec<u8> {
        let maced_id = prf(self.suite.prf, self.p(signer), &[&id.body()]);
        [message, peer_nonce, maced_id.expose()].concat()
    }

    /// The AUTH value of a pre-shared key over [`IkeSaKeys::signed_octets`] (RFC 7296 §2.15). Compare it as
    /// [`Secret`]s, in constant time.
    pub fn psk_auth(&self, psk: &Secret, signed_octets: &[u8]) -> Secret {
        let key = prf(self.suite.prf, psk.expose(), &[KEY_PAD]);
        prf(self.suite.prf, key.expose(), &[signed_octets])
    }

    /// Protects what we send. `role` is ours.
    pub fn sealer(&self, role: Role) -> Sealer {
        Sealer::new(self.sk_key(role))
    }

    /// Opens what the peer sends. `role` is ours.
    pub fn opener(&self, role: Role) -> Opener {
        Opener::new(self.sk_key(role.peer()))
    }

    fn sk_key(&self, from: Role) -> SkKey {
        SkKey::new(
            self.suite.encryption,
            self.suite.integrity,
            self.of(from, SK_E),
            self.of(from, SK_A),
        )
        .expect("a suite's keys have the suite's lengths")
    }

    /// SK_e of the messages that `from` sends, only for a key export that was asked for. The salt of an AEAD is at
    /// the end.
    pub fn export_encryption(&self, from: Role) -> &[u8] {
        self.of(from, SK_E)
    }

    /// SK_a of the messages that `from` sends, only for a key export that was asked for. It is empty with an AEAD.
    pub fn export_integrity(&self, from: Role) -> &[u8] {
        self.of(from, SK_A)
    }
}
