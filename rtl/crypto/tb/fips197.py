"""FIPS 197: the key schedules of appendices A.1 and A.3, and the rounds of the example of appendix B."""

KEYS = {
    "2b7e151628aed2a6abf7158809cf4f3c":
        "a0fafe1788542cb123a339392a6c7605 f2c295f27a96b9435935807a7359f67f 3d80477d4716fe3e1e237e446d7a883b "
        "ef44a541a8525b7fb671253bdb0bad00 d4d1c6f87c839d87caf2b8bc11f915bc 6d88a37a110b3efddbf98641ca0093fd "
        "4e54f70e5f5fc9f384a64fb24ea6dc4f ead27321b58dbad2312bf5607f8d292f ac7766f319fadc2128d12941575c006e "
        "d014f9a8c9ee2589e13f0cc8b6630ca6",
    "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4":
        "9ba354118e6925afa51a8b5f2067fcde a8b09c1a93d194cdbe49846eb75d5b9a d59aecb85bf3c917fee94248de8ebe96 "
        "b5a9328a2678a647983122292f6c79b3 812c81addadf48ba24360af2fab8b464 98c5bfc9bebd198e268c3ba709e04214 "
        "68007bacb2df331696e939e46c518d80 c814e20476a9fb8a5025c02d59c58239 de1369676ccc5a71fa2563959674ee15 "
        "5886ca5d2e2f31d77e0af1fa27cf73c3 749c47ab18501ddae2757e4f7401905a cafaaae3e4d59b349adf6acebd10190d "
        "fe4890d1e6188d0b046df344706c631e",
}  # fmt: skip

# The state at the start of each round of appendix B, and the output.
STATES = (
    "193de3bea0f4e22b9ac68d2ae9f84808 a49c7ff2689f352b6b5bea43026a5049 aa8f5f0361dde3ef82d24ad26832469a "
    "486c4eee671d9d0d4de3b138d65f58e7 e0927fe8c86363c0d9b1355085b8be01 f1006f55c1924cef7cc88b325db5d50c "
    "260e2e173d41b77de86472a9fdd28b25 5a4142b11949dc1fa3e019657a8c040c ea835cf00445332d655d98ad8596b0c5 "
    "eb40f21e592e38848ba113e71bc342d2 3925841d02dc09fbdc118597196a0b32"
)  # fmt: skip


def schedule(key):
    """All round keys, the raw key's halves among them."""
    return [key[at : at + 16] for at in range(0, len(key), 16)] + [bytes.fromhex(text) for text in KEYS[key.hex()].split()]


def keys():
    return [bytes.fromhex(text) for text in KEYS]


def rounds():
    """(state, round key, next state) of rounds 1 to 10."""
    states = [bytes.fromhex(text) for text in STATES.split()]
    return list(zip(states, schedule(keys()[0])[1:], states[1:]))
