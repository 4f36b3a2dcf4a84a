//! The page: one file, with its script and style in it, in the program.
//!
//! Invariant: a browser executes nothing else. Each reply has its own nonce; what is not marked with it, and
//! everything from other addresses, is refused by the policy that travels along.

use super::http::Body;
use anyhow::Result;

const PAGE: &str = include_str!("page.html");
/// Where the nonce of a reply stands in the page.
const NONCE: &str = "NONCE-OF-THIS-REPLY";

/// The page with a nonce of its own.
pub(super) fn body() -> Result<Body> {
    let nonce = hex::encode(library::random::<16>()?);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    Ok(Body::page(PAGE.replace(NONCE, &nonce), &policy))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_page_is_small_and_asks_nobody_else() {
        assert!(PAGE.len() < 60 * 1024, "{} bytes", PAGE.len());
        assert_eq!(PAGE.matches(NONCE).count(), 2, "one script, one style");
        assert_eq!(PAGE.matches("<script").count() + PAGE.matches("<style").count(), 2);
        for outside in
            ["http://", "https://", "//cdn", "@import", "url(", "innerHTML", " style=", "eval("]
        {
            // Names that are no addresses.
            let page = PAGE.replace("http://www.w3.org/2000/svg", "");
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn each_reply_has_a_nonce_of_its_own() {
        assert_ne!(body().unwrap(), body().unwrap());
    }
}
