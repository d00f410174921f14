//! Counts how often a file has a passphrase hashed, before anybody does so. The counts in a file bound the work that it
//! makes: PBKDF2, PBES1 and the PBE and MAC of PKCS#12 all have them.

/// Structures that are nested deeper are not looked into. Those of PKCS#12 are nested 18 deep.
const DEPTH_MAX: usize = 32;

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const CONSTRUCTED: u8 = 0x20;

/// Returns the sum of all iteration counts in BER. In each scheme the count is the INTEGER behind the salt, which is an
/// OCTET STRING (RFC 8018 appendix A, RFC 7292 §4 and appendix C).
pub(crate) fn iterations(ber: &[u8]) -> u64 {
    let mut sum = 0_u64;
    add_iterations(ber, DEPTH_MAX, &mut sum);
    sum
}

/// Adds the counts among the values in `ber` to `sum`. Returns what follows the end-of-contents octets, or an empty slice.
fn add_iterations<'a>(mut ber: &'a [u8], depth: usize, sum: &mut u64) -> &'a [u8] {
    let mut behind_salt = false;
    while let Some(value) = Value::read(ber) {
        ber = value.rest;
        if value.is_end() {
            return ber;
        }
        if value.tag == INTEGER && behind_salt {
            *sum = sum.saturating_add(number(value.content));
        }
        behind_salt = value.tag & !CONSTRUCTED == OCTET_STRING;
        // The content of PKCS#12 lies in OCTET STRINGs.
        if depth > 0 && (value.tag & CONSTRUCTED != 0 || behind_salt) {
            let rest = add_iterations(value.content, depth - 1, sum);
            if value.is_open {
                ber = rest;
            }
        }
    }
    &[]
}

/// A value in BER: its tag, and its content. If the length is not written (`is_open`), the content reaches up to the
/// end-of-contents octets, which are somewhere in it, and `rest` is empty.
struct Value<'a> {
    tag: u8,
    is_open: bool,
    content: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Value<'a> {
    fn read(ber: &'a [u8]) -> Option<Self> {
        let (&[tag, first], rest) = ber.split_first_chunk::<2>()?;
        let (len, rest) = match first {
            0x80 => {
                return Some(Self {
                    tag,
                    is_open: true,
                    content: rest,
                    rest: &[],
                });
            }
            0x81.. => {
                let (octets, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                (usize::try_from(number(octets)).ok()?, rest)
            }
            _ => (usize::from(first), rest),
        };
        // A library may take what is there of a value that is cut off.
        let (content, rest) = rest.split_at(len.min(rest.len()));
        Some(Self {
            tag,
            is_open: false,
            content,
            rest,
        })
    }

    fn is_end(&self) -> bool {
        self.tag == 0 && self.content.is_empty()
    }
}

/// Returns a number of big-endian octets, or the largest one if it is larger.
fn number(octets: &[u8]) -> u64 {
    octets.iter().fold(0_u64, |number, octet| {
        number.saturating_mul(256).saturating_add(u64::from(*octet))
    })
}
