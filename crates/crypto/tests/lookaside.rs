//! Records of general AEADs.

use esplanade_crypto::Tier;
use esplanade_crypto::lookaside::{AeadAlgorithm, AeadError, AeadKey};
use esplanade_crypto::testing;

#[test]
fn a_record_is_not_longer_than_its_counter_allows() {
    let algorithm = AeadAlgorithm::Aes128Gcm;
    let key = AeadKey::for_tier(Tier::Portable, algorithm, &[1; 16]).unwrap();
    let most = usize::try_from(algorithm.text_len_max()).unwrap();
    for (len, error) in [
        (most, None),
        (
            most + 1,
            Some(AeadError::TooLong {
                algorithm,
                len: most + 1,
            }),
        ),
    ] {
        assert_eq!(testing::record_of_len(&key, len).err(), error);
    }
}
