//! CSV (RFC 4180), whose texts no spreadsheet takes for formulas.

/// Appends a line with these texts.
pub fn line<'a>(to: &mut String, texts: impl IntoIterator<Item = &'a str>) {
    for (place, text) in texts.into_iter().enumerate() {
        if place > 0 {
            to.push(',');
        }
        cell(to, text);
    }
    to.push_str("\r\n");
}

fn cell(to: &mut String, text: &str) {
    // A spreadsheet would run it.
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t']);
    let is_quoted = text.contains(['"', ',', '\r', '\n']);
    if is_quoted {
        to.push('"');
    }
    if is_formula {
        to.push('\'');
    }
    if is_quoted {
        to.push_str(&text.replace('"', "\"\""));
        to.push('"');
    } else {
        to.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_where_they_must_be_and_formulas_are_texts() {
        for (texts, expected) in [
            (vec!["a", "", "b c"], "a,,b c\r\n"),
            (vec!["a,b", "say \"so\"", "two\nlines"], "\"a,b\",\"say \"\"so\"\"\",\"two\nlines\"\r\n"),
            (vec!["=1+1", "+1", "-1", "@x", "\tx", "1=1"], "'=1+1,'+1,'-1,'@x,'\tx,1=1\r\n"),
            (vec!["=\"a\",b"], "\"'=\"\"a\"\",b\"\r\n"),
        ] {
            let mut csv = String::new();
            line(&mut csv, texts);
            assert_eq!(csv, expected);
        }
    }
}
