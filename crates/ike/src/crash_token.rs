//! Quick crash detection (RFC 6290): a token shows that the peer itself has lost an IKE SA.
//!
//! Each end gives the other a token for the IKE SA, under protection. An end that does not know the IKE SA of a request
//! any more answers with the token, unprotected. The secret survives a restart, so the token can be made again.

use aws_lc_rs::{constant_time, hmac};
use esplanade_crypto::secret::Secret;

use crate::wire::{Message, Notify, NotifyType, Payload, ProtocolId};

/// The lengths that a token may have (RFC 6290 §4.1).
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=128;
/// Tokens of one message that are looked at. A taker looks at four or more (RFC 6290 §4.5).
const TOKENS_MAX: usize = 4;

/// Our token for the IKE SA. Nobody without the secret can tell the token of one pair of SPIs from those of others
/// (RFC 6290 §5).
pub(crate) fn payload(secret: &Secret, spi_i: u64, spi_r: u64) -> Payload {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose());
    let mut context = hmac::Context::with_key(&key);
    context.update(b"quick crash detection");
    context.update(&spi_i.to_be_bytes());
    context.update(&spi_r.to_be_bytes());
    Payload::Notify(Notify {
        protocol: ProtocolId::IKE,
        ..Notify::new(
            NotifyType::QUICK_CRASH_DETECTION,
            context.sign().as_ref().to_vec(),
        )
    })
}

fn tokens(message: &Message) -> impl Iterator<Item = &[u8]> {
    let notifies = message
        .notifications()
        .filter(|notify| notify.kind == NotifyType::QUICK_CRASH_DETECTION);
    notifies
        .map(|notify| notify.data.as_slice())
        .filter(|token| LENGTHS.contains(&token.len()))
}

/// The token that a protected message brings.
pub(crate) fn given(message: &Message) -> Option<Secret> {
    tokens(message).next().map(|token| token.to_vec().into())
}

/// Says whether an unprotected message shows the token that the peer gave us.
pub(crate) fn shows(message: &Message, token: &Secret) -> bool {
    tokens(message)
        .take(TOKENS_MAX)
        .any(|shown| constant_time::verify_slices_are_equal(shown, token.expose()).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ExchangeType, Header};

    fn token(secret: &[u8], spi_i: u64, spi_r: u64) -> Notify {
        match payload(&Secret::from(secret), spi_i, spi_r) {
            Payload::Notify(notify) => notify,
            other => panic!("{other:?}"),
        }
    }

    fn message(tokens: &[Vec<u8>]) -> Message {
        let notify = |token: &Vec<u8>| {
            let kind = NotifyType::QUICK_CRASH_DETECTION;
            Payload::Notify(Notify::new(kind, token.clone()))
        };
        Message {
            header: Header {
                initiator_spi: 1,
                responder_spi: 2,
                exchange: ExchangeType::INFORMATIONAL,
                from_initiator: true,
                response: true,
                message_id: 3,
            },
            payloads: tokens.iter().map(notify).collect(),
        }
    }

    // RFC 6290 R1, R13
    #[test]
    fn a_token_is_for_one_ike_sa_and_of_one_secret() {
        let one = token(b"secret", 1, 2);
        assert_eq!((one.protocol, one.spi.len()), (ProtocolId::IKE, 0));
        assert!(LENGTHS.contains(&one.data.len()));
        assert_eq!(one, token(b"secret", 1, 2));
        for other in [
            token(b"secret", 2, 1),
            token(b"secret", 1, 3),
            token(b"other", 1, 2),
        ] {
            assert_ne!(one.data, other.data);
        }
    }

    // RFC 6290 R11, R12
    #[test]
    fn four_tokens_are_looked_at_and_short_and_long_ones_are_not() {
        let own = Secret::from([7; 32].as_slice());
        let (right, wrong) = (vec![7; 32], vec![8; 32]);
        for place in 0..5 {
            let mut tokens = vec![wrong.clone(); 5];
            tokens[place] = right.clone();
            assert_eq!(shows(&message(&tokens), &own), place < 4);
        }
        assert!(!shows(&message(&[]), &own));
        assert!(!shows(&message(&[vec![7; 31]]), &own));
        for (len, taken) in [
            (0, false),
            (15, false),
            (16, true),
            (128, true),
            (129, false),
        ] {
            let given = given(&message(&[vec![1; len]]));
            assert_eq!(given.map(|token| token.len()), taken.then_some(len));
        }
    }
}
