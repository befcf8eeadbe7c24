//! Signatures of tokens, of which the key is public.

use aws_lc_rs::signature::{
    ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use levity_wire::jwt::{Material, Token};

/// Whether the owner of the public key has signed the token. Takes a tenth of a millisecond.
pub fn has_signed(key: &Material, token: &Token<'_>) -> bool {
    let (signed, signature) = (token.signed, &token.signature[..]);
    let verified = match key {
        Material::Secret(_) => return false,
        Material::Rsa(n, e) => {
            RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
        }
        Material::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(signed, signature),
    };
    verified.is_ok()
}
