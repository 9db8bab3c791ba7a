//! Every function of every library.

use super::check_rows;

#[test]
fn strings() {
    check_rows(&[
        ("'tacocat'.charAt(3)", r#""o""#),
        ("'tacocat'.charAt(7)", r#""""#),
        ("'tacocat'.charAt(30)", "error: index out of range: 30"),
        ("'ta©o©αT'.charAt(5)", r#""α""#),
        ("'tacocat'.indexOf('ac')", "1"),
        ("'tacocat'.indexOf('none')", "-1"),
        ("'tacocat'.indexOf('a', 3)", "5"),
        ("'ta©o©αT'.indexOf('α')", "5"),
        ("'tacocat'.indexOf('', 2)", "2"),
        ("'tacocat'.indexOf('a', -1)", "error: index out of range: -1"),
        ("'tacocat'.indexOf('a', 30)", "-1"),
        ("'tacocat'.lastIndexOf('at')", "5"),
        ("'tacocat'.lastIndexOf('')", "7"),
        ("'tacocat'.lastIndexOf('a', 5)", "5"),
        ("'tacocat'.lastIndexOf('a', 3)", "1"),
        ("'ta©o©αT'.lastIndexOf('©')", "4"),
        ("'ta©o©αT'.lastIndexOf('©', 3)", "2"),
        ("'TacoCat'.lowerAscii() + 'TacoCÆt'.lowerAscii()", r#""tacocattacocÆt""#),
        ("'tacoCat'.upperAscii()", r#""TACOCAT""#),
        ("'12 days 12 hours'.replace('{0}', '2')", r#""12 days 12 hours""#),
        ("'{0} days {0} hours'.replace('{0}', '2')", r#""2 days 2 hours""#),
        ("'{0} days {0} hours'.replace('{0}', '2', 1)", r#""2 days {0} hours""#),
        ("'ab'.replace('', '-')", r#""-a-b-""#),
        ("'ab'.replace('', '-', 1)", r#""-ab""#),
        ("'hello hello hello'.split(' ')", r#"["hello", "hello", "hello"]"#),
        ("'hello world events!'.split(' ', 0)", "[]"),
        ("'hello world events!'.split(' ', 1)", r#"["hello world events!"]"#),
        ("'o©o©o©o'.split('©', -1)", r#"["o", "o", "o", "o"]"#),
        ("'a,b,c'.split(',', 2)", r#"["a", "b,c"]"#),
        ("'abc'.split('')", r#"["a", "b", "c"]"#),
        ("'abc'.split('', 2)", r#"["a", "bc"]"#),
        ("''.split(',')", r#"[""]"#),
        ("'tacocat'.substring(4)", r#""cat""#),
        ("'tacocat'.substring(0, 4)", r#""taco""#),
        ("'ta©o©αT'.substring(2, 6)", r#""©o©α""#),
        ("'tacocat'.substring(40)", "error: index out of range: 40"),
        ("'tacocat'.substring(-1)", "error: index out of range: -1"),
        ("'tacocat'.substring(3, 1)", "error: invalid substring range. start: 3, end: 1"),
        ("' \\f\\n\\r\\t\\vtext  '.trim()", r#""text""#),
        ("['x', 'y'].join() + ['x', 'y'].join('-')", r#""xyx-y""#),
        ("[].join('-')", r#""""#),
        ("strings.quote('first\\n\"second\"')", r#""\"first\\n\\\"second\\\"\"""#),
        ("'abc'.startsWith('ab') && 'abc'.endsWith('bc') && 'abc'.contains('b')", "true"),
        ("dyn(1).startsWith('a')", "error: no such overload"),
    ]);
}

#[test]
fn formatting() {
    check_rows(&[
        ("'no substitution'.format([])", r#""no substitution""#),
        ("'str is %s and %d%%'.format(['filler', 3])", r#""str is filler and 3%""#),
        ("'%b %b %b'.format([5, -5, true])", r#""101 -101 1""#),
        ("'%o %x %X'.format([11, 30, 30])", r#""13 1e 1E""#),
        ("'%x %X'.format(['Hello', b'\\x00b'])", r#""48656c6c6f 0062""#),
        ("'%.3f %f'.format([1.2345, 2.71828])", r#""1.234 2.718280""#),
        ("'%.2f'.format([1234567.891])", r#""1,234,567.89""#),
        ("'%e'.format([1052.032911275])", r#""1.052033×10⁰³""#),
        ("'%f'.format(['Infinity'])", r#""∞""#),
        ("'%s %s'.format([2.71, 0.000000002])", r#""2.71 2e-09""#),
        (
            "'%s'.format([['abc', 3.14, null, [9], timestamp('2023-02-03T23:31:20Z')]])",
            r#""[\"abc\", 3.140000, null, [9], timestamp(\"2023-02-03T23:31:20Z\")]""#,
        ),
        (
            "'%s'.format([{'key1': b'xyz', 'key2': duration('2h'), 'key3': true}])",
            r#""{\"key1\":b\"xyz\", \"key2\":duration(\"7200s\"), \"key3\":true}""#,
        ),
        ("'%s %s'.format([type('a'), duration('1h45m47s')])", r#""string 6347s""#),
        (
            "'%s'.format([dyn(1), 2])",
            "compile: ERROR: <input>:1:12: too many arguments supplied to string.format (expected 1, got 2)\n | '%s'.format([dyn(1), 2])\n | ...........^",
        ),
        (
            "'%d'.format(['a'])",
            "compile: ERROR: <input>:1:14: error during formatting: decimal clause can only be used on integers, was given string\n | '%d'.format(['a'])\n | .............^",
        ),
        (
            "'%d'.format([dyn('a')])",
            "error: error during formatting: decimal clause can only be used on integers, was given string",
        ),
        (
            "'%a'.format([1])",
            "compile: ERROR: <input>:1:12: could not parse formatting clause: unrecognized formatting clause \"a\"\n | '%a'.format([1])\n | ...........^",
        ),
        (
            "'%d %d'.format([1])",
            "compile: ERROR: <input>:1:15: index 1 out of range\n | '%d %d'.format([1])\n | ..............^",
        ),
    ]);
}

#[test]
fn lists() {
    check_rows(&[
        ("[1, 2, 2].isSorted() && ['a', 'b'].isSorted() && ![2, 1].isSorted() && [].isSorted()", "true"),
        ("[duration('1s'), duration('2s')].isSorted() && [b'a', b'b'].isSorted()", "true"),
        ("[1, 3].sum() + [1, 3].max() + [1, 3].min()", "8"),
        ("[1u, 3u].sum()", "4u"),
        ("[1.5, 2.0].sum()", "3.5"),
        ("[duration('1m'), duration('1s')].sum()", "duration(61s)"),
        ("['b', 'a'].min() + ['b', 'a'].max()", r#""ab""#),
        ("dyn([]).sum()", "0"),
        ("[1].filter(i, false).max()", "error: max called on empty list"),
        ("[9223372036854775807, 1].sum()", "error: integer overflow"),
        ("[1, 2, 2, 3].indexOf(2)", "1"),
        ("['a', 'b', 'b', 'c'].lastIndexOf('b')", "2"),
        ("[1.0].indexOf(1.1)", "-1"),
        ("[1, 2, 3, 4].slice(1, 3)", "[2, 3]"),
        ("[1, 2].slice(-1, 1)", "error: cannot slice(-1, 1), negative indexes not supported"),
        (
            "[1, 2].slice(2, 1)",
            "error: cannot slice(2, 1), start index must be less than or equal to end index",
        ),
        ("[1, 2].slice(0, 3)", "error: cannot slice(0, 3), list is length 2"),
        ("[[1, 2], [3]].flatten()", "[1, 2, 3]"),
        (
            "dyn([1, [2, [3, [4]]]]).flatten(2)",
            "compile: ERROR: <input>:1:9: expected type 'int' but found 'list(dyn)'\n | dyn([1, [2, [3, [4]]]]).flatten(2)\n | ........^\nERROR: <input>:1:13: expected type 'int' but found 'list(dyn)'\n | dyn([1, [2, [3, [4]]]]).flatten(2)\n | ............^\nERROR: <input>:1:17: expected type 'int' but found 'list(int)'\n | dyn([1, [2, [3, [4]]]]).flatten(2)\n | ................^",
        ),
        ("[dyn(1), dyn([2, 3]), dyn([[4]])].flatten(1)", "[1, 2, 3, [4]]"),
        ("[[1]].flatten(-1)", "error: level must be non-negative"),
        ("lists.range(4)", "[0, 1, 2, 3]"),
        ("[1, 2, 3].reverse()", "[3, 2, 1]"),
        ("[1, 2, 1, 3, 2].distinct()", "[1, 2, 3]"),
        ("[3, 1, 2].sort()", "[1, 2, 3]"),
        ("['b', 'a'].sort()", r#"["a", "b"]"#),
        ("[3, 1, 2].sortBy(i, -i)", "[3, 2, 1]"),
        (
            "[{'n': 'b', 'v': 1}, {'n': 'a', 'v': 2}].sortBy(e, e.n).map(e, e.v)",
            "compile: ERROR: <input>:1:18: expected type 'string' but found 'int'\n | [{'n': 'b', 'v': 1}, {'n': 'a', 'v': 2}].sortBy(e, e.n).map(e, e.v)\n | .................^\nERROR: <input>:1:38: expected type 'string' but found 'int'\n | [{'n': 'b', 'v': 1}, {'n': 'a', 'v': 2}].sortBy(e, e.n).map(e, e.v)\n | .....................................^",
        ),
        ("[{'n': 'b'}, {'n': 'a'}].sortBy(e, e.n)[0].n", r#""a""#),
        ("[].sort()", "[]"),
        ("dyn([dyn(1), dyn('a')]).sort()", "error: list elements must have the same type"),
    ]);
}

#[test]
fn regular_expressions() {
    check_rows(&[
        ("'foo-123'.matches('^[a-z]+-[0-9]+$')", "true"),
        ("matches('foobar', 'o{2}b')", "true"),
        ("'abc 123'.find('[0-9]+')", r#""123""#),
        ("'abc'.find('[0-9]+')", r#""""#),
        ("'123 abc 456'.findAll('[0-9]+')", r#"["123", "456"]"#),
        ("'123 abc 456'.findAll('[0-9]+', 1)", r#"["123"]"#),
        ("'123 abc 456'.findAll('[0-9]+', 0)", "[]"),
        ("'123 abc'.findAll('xyz')", "[]"),
        ("'é'.matches('\\\\w')", "false"),
        (
            "'a'.matches('(')",
            "compile: ERROR: <input>:1:13: invalid matches argument\n | 'a'.matches('(')\n | ............^",
        ),
        ("'a'.matches('(' + '')", "error: error parsing regexp: unclosed group"),
        ("'a'.find('(' + '')", "error: Illegal regex: error parsing regexp: unclosed group"),
        ("'a1'.matches('[a-z]' + '[0-9]')", "true"),
    ]);
}

#[test]
fn sets() {
    check_rows(&[
        ("sets.contains([], [])", "true"),
        ("sets.contains([], [1])", "false"),
        ("sets.contains([1, 2, 3, 4], [2, 3])", "true"),
        ("sets.contains([1], [1, 1])", "true"),
        (
            "sets.equivalent([1], [1, 1]) && sets.equivalent([1, 2, 3], [3, 2, 1]) && !sets.equivalent([1], [2])",
            "true",
        ),
        ("sets.intersects([1], [1, 2]) && !sets.intersects([], [1]) && !sets.intersects([1], [2])", "true"),
    ]);
}

#[test]
fn urls() {
    check_rows(&[
        ("url('https://user:pw@example.com:8080/a%20b/c?k=1&k=2&l=x+y#frag').getScheme()", r#""https""#),
        ("url('https://user:pw@example.com:8080/a?k=1').getHost()", r#""example.com:8080""#),
        (
            "url('https://example.com:8080/').getHostname() + url('https://example.com:8080/').getPort()",
            r#""example.com8080""#,
        ),
        (
            "url('https://[::1]:80/').getHost() + ' ' + url('https://[::1]:80/').getHostname()",
            r#""[::1]:80 ::1""#,
        ),
        ("url('https://example.com/a%20b').getEscapedPath()", r#""/a%20b""#),
        ("url('https://example.com/with space/').getEscapedPath()", r#""/with%20space/""#),
        ("url('https://example.com/?k=1&k=2&l=x+y').getQuery()", r#"{"k": ["1", "2"], "l": ["x y"]}"#),
        ("url('https://example.com/').getQuery()", "{}"),
        ("url('/absolute').getHost()", r#""""#),
        ("url('HTTP://a/') == url('http://a/') && url('http://a/') != url('http://b/')", "true"),
        (
            "isURL('https://a:80/') && isURL('/a') && !isURL('../rel') && !isURL('https://a:b/') && !isURL('')",
            "true",
        ),
        (
            "url('../relative')",
            r#"error: URL parse error during conversion from string: parse "../relative": invalid URI for request"#,
        ),
        (
            "url('https://a b/')",
            r#"error: URL parse error during conversion from string: parse "https://a b/": invalid character " " in host name"#,
        ),
        (
            "url('https://a/%zz')",
            r#"error: URL parse error during conversion from string: parse "https://a/%zz": invalid URL escape "%zz""#,
        ),
    ]);
}

#[test]
fn quantities() {
    check_rows(&[
        ("isQuantity('20Mi') && isQuantity('20') && !isQuantity('20Mo') && !isQuantity('10Mm')", "true"),
        (
            "quantity('10Mo')",
            "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ("quantity('200M') == quantity('0.2G') && quantity('200M') != quantity('0.3G')", "true"),
        (
            "quantity('50M').isLessThan(quantity('50Mi')) && quantity('50Mi').isGreaterThan(quantity('50M'))",
            "true",
        ),
        ("quantity('200M').compareTo(quantity('0.2G'))", "0"),
        ("quantity('50M').compareTo(quantity('50Mi'))", "-1"),
        ("quantity('50k').add(quantity('20')) == quantity('50.02k')", "true"),
        ("quantity('50k').sub(20) == quantity('49980')", "true"),
        ("quantity('50k').add(20).sub(quantity('100k')).asInteger()", "-49980"),
        ("quantity('50.703k').asApproximateFloat()", "50703.0"),
        ("quantity('1.5').isInteger()", "false"),
        ("quantity('1.5').asInteger()", "error: cannot convert value to integer"),
        ("sign(quantity('-1')) + sign(quantity('0')) + sign(quantity('1k'))", "0"),
        (
            "isQuantity(1)",
            "compile: ERROR: <input>:1:11: found no matching overload for 'isQuantity' applied to '(int)'\n | isQuantity(1)\n | ..........^",
        ),
    ]);
}

#[test]
fn addresses_and_networks() {
    check_rows(&[
        (
            "isIP('192.168.0.1') && isIP('2001:db8::68') && !isIP('192.168.0.1.0') && !isIP('::ffff:1.2.3.4')",
            "true",
        ),
        (
            "ip('192.168.0.1.0')",
            r#"error: IP Address "192.168.0.1.0" parse error during conversion from string: ParseAddr("192.168.0.1.0"): IPv4 address too long"#,
        ),
        (
            "ip('2001:db8:::68')",
            r#"error: IP Address "2001:db8:::68" parse error during conversion from string: ParseAddr("2001:db8:::68"): each colon-separated field must have at least one digit (at ":68")"#,
        ),
        ("ip('fe80::1%en0')", r#"error: IP address "fe80::1%en0" with zone value is not allowed"#),
        ("ip('::ffff:1.2.3.4')", r#"error: IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed"#),
        (
            "ip.isCanonical('127.0.0.1') && ip.isCanonical('2001:db8::68') && !ip.isCanonical('2001:DB8::68')",
            "true",
        ),
        ("ip('1.2.3.4').family() + ip('::1').family()", "10"),
        ("ip('0.0.0.0').isUnspecified() && ip('::').isUnspecified()", "true"),
        ("ip('127.0.0.1').isLoopback() && ip('::1').isLoopback()", "true"),
        (
            "ip('224.0.0.1').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast() && !ip('224.0.1.1').isLinkLocalMulticast()",
            "true",
        ),
        ("ip('169.254.169.254').isLinkLocalUnicast() && ip('fe80::1').isLinkLocalUnicast()", "true"),
        (
            "ip('192.168.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast() && !ip('ff00::1').isGlobalUnicast()",
            "true",
        ),
        ("string(ip('2001:0db8::68'))", r#""2001:db8::68""#),
        ("type(ip('1.2.3.4')) == net.IP && type(cidr('10.0.0.0/8')) == net.CIDR", "true"),
        (
            "isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0/08')",
            "true",
        ),
        (
            "cidr('192.168.0.0/24').containsIP('192.168.0.1') && !cidr('192.168.0.0/24').containsIP(ip('192.168.1.1'))",
            "true",
        ),
        (
            "cidr('192.168.0.0/24').containsCIDR('192.168.0.0/25') && !cidr('192.168.0.0/24').containsCIDR(cidr('192.168.0.0/23'))",
            "true",
        ),
        (
            "cidr('10.0.0.1/8').masked() == cidr('10.0.0.0/8') && cidr('10.0.0.1/8').ip() == ip('10.0.0.1')",
            "true",
        ),
        ("cidr('::/0').prefixLength() + cidr('10.0.0.0/8').prefixLength()", "8"),
        ("string(cidr('10.0.0.0/8'))", r#""10.0.0.0/8""#),
        (
            "cidr('192.168.0.0/')",
            r#"error: network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("192.168.0.0/"): bad bits after slash: """#,
        ),
    ]);
}

#[test]
fn named_formats() {
    check_rows(&[
        ("format.dns1123Label().validate('my-name')", "none"),
        ("format.dns1123Label().validate('My').hasValue()", "true"),
        ("format.named('dns1123Subdomain').value().validate('a.b')", "none"),
        ("format.named('nope')", "none"),
        ("format.dns1123LabelPrefix().validate('my-name-')", "none"),
        (
            "format.dns1035Label().validate('1a').hasValue() && !format.dns1035LabelPrefix().validate('a-').hasValue()",
            "true",
        ),
        (
            "!format.dns1123SubdomainPrefix().validate('a.b-').hasValue() && format.dns1123Subdomain().validate('a..b').hasValue()",
            "true",
        ),
        (
            "!format.qualifiedName().validate('example.com/name').hasValue() && !format.labelValue().validate('').hasValue()",
            "true",
        ),
        (
            "format.uri().validate('http://example.com') == optional.none() && format.uri().validate('x').hasValue()",
            "true",
        ),
        ("format.uuid().validate('x').value()", r#"["does not match the UUID format"]"#),
        ("!format.uuid().validate('6ba7b810-9dad-11d1-80b4-00c04fd430c8').hasValue()", "true"),
        (
            "format.byte().validate('!').value()[0] + format.date().validate('x').value()[0]",
            r#""invalid base64invalid date""#,
        ),
        ("format.datetime().validate('x').value()[0]", r#""invalid datetime""#),
        (
            "!format.datetime().validate('2021-01-01T00:00:00Z').hasValue() && !format.date().validate('2021-01-01').hasValue() && !format.byte().validate('aGVsbG8=').hasValue()",
            "true",
        ),
        ("format.dns1123Label() == format.named('dns1123Label').value()", "true"),
    ]);
}

#[test]
fn versions() {
    check_rows(&[
        (
            "isSemver('1.2.3-beta.1+build.1') && !isSemver('') && !isSemver('v1.0.0') && !isSemver('01.01.01') && !isSemver('1.1')",
            "true",
        ),
        (
            "isSemver('v1.0.0', true) && isSemver('01.01.01', true) && isSemver('1', true) && !isSemver('1. 0.0', true)",
            "true",
        ),
        ("semver('v01.01', true) == semver('1.1.0')", "true"),
        ("semver('v1.0')", "error: No Major.Minor.Patch elements found"),
        (
            "semver('1.0.0').isLessThan(semver('1.2.3')) && semver('1.2.3').isGreaterThan(semver('1.0.0'))",
            "true",
        ),
        ("semver('1.2.3').compareTo(semver('1.2.3')) + semver('1.0.0').compareTo(semver('1.2.3'))", "-1"),
        (
            "semver('1.0.0-alpha.2').isLessThan(semver('1.0.0-alpha.10')) && semver('1.0.0-rc').isLessThan(semver('1.0.0'))",
            "true",
        ),
        ("semver('1.0.0+a') == semver('1.0.0+b')", "true"),
        ("semver('4.5.6').major() * 100 + semver('4.5.6').minor() * 10 + semver('4.5.6').patch()", "456"),
    ]);
}

mod authorizer {
    use polder_model::Value as Json;

    use crate::{
        Authorizer, Bindings, Decision, Environment, Opaque, Question, Target, Type, Value, tests::run_in,
    };

    /// Allows getting pods of one namespace, and the path `/healthz` to a service account.
    struct Fixed;

    impl Authorizer for Fixed {
        fn check(&self, question: &Question<'_>) -> Decision {
            let allowed = match &question.target {
                Target::Path(path) => *path == "/healthz" && question.service_account == Some(("ns", "sa")),
                Target::Resource(resource) => resource.resource == "pods" && resource.namespace == "default",
            };
            let error = (question.verb == "explode").then(|| "boom".to_string());
            Decision {
                allowed: allowed && question.verb == "get",
                reason: format!("verb {}", question.verb),
                error,
            }
        }
    }

    #[test]
    fn questions_reach_the_host() {
        let env = Environment::new().variable_of("authorizer", Type::Opaque(Opaque::Authorizer));
        let _ = Json::Null;
        let rows = [
            ("authorizer.group('').resource('pods').namespace('default').check('get').allowed()", "true"),
            ("authorizer.group('').resource('pods').namespace('other').check('get').allowed()", "false"),
            (
                "authorizer.group('apps').resource('pods').subresource('status').name('x').fieldSelector('a=b').labelSelector('c=d').check('list').reason()",
                r#""verb list""#,
            ),
            ("authorizer.serviceAccount('ns', 'sa').path('/healthz').check('get').allowed()", "true"),
            ("authorizer.path('/healthz').check('get').allowed()", "false"),
            (
                "authorizer.path('/x').check('explode').errored() && authorizer.path('/x').check('explode').error() == 'boom'",
                "true",
            ),
            ("authorizer.path('/x').check('get').errored()", "false"),
            ("authorizer.path('')", "error: path must not be empty"),
            ("authorizer.group('').resource('')", "error: resource must not be empty"),
            ("authorizer.serviceAccount('NS', 'sa')", "error: Invalid service account namespace"),
            (
                "[1, 2, 3].all(i, authorizer.path('/x').check('get').reason() != '')",
                "error: operation cancelled: actual cost limit exceeded",
            ),
        ];
        for (source, expected) in rows {
            let found = run_in(&env, source, |()| Bindings::new().with(Value::authorizer(&Fixed)));
            assert_eq!(found, expected, "{source}");
        }
    }
}
