from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmip.accounting import convert
from gmip.errors import InvalidArgument

INF = math.inf
NAN = math.nan

scales = st.floats(1e-6, 1e6)
sizes = st.integers(1, 10**9)
mus = st.floats(1e-6, 1e3)
epsilons = st.floats(0.0, 1e3)
deltas = st.floats(1e-300, 1.0 - 1e-12)


class TestNoiseConventions:
    def test_factors(self):
        run = {"clip_norm": 500.0, "batch_size": 400}
        assert convert.noise_std_from_multiplier(0.8, **run) == pytest.approx(0.8 * 500 / 400)
        assert convert.noise_multiplier_from_std(1.0, **run) == pytest.approx(0.8)
        assert convert.dong_sigma_from_noise_std(1.0, **run) == pytest.approx(0.4)

    @given(noise=scales, clip_norm=scales, batch_size=sizes)
    def test_round_trips(self, noise, clip_norm, batch_size):
        run = {"clip_norm": clip_norm, "batch_size": batch_size}
        std = convert.noise_std_from_multiplier(noise, **run)
        assert convert.noise_multiplier_from_std(std, **run) == pytest.approx(noise, rel=1e-14)

    @given(multiplier=scales, clip_norm=scales, batch_size=sizes)
    def test_dong_sigma_is_one_over_the_replace_one_mu(self, multiplier, clip_norm, batch_size):
        run = {"clip_norm": clip_norm, "batch_size": batch_size}
        sigma = convert.dong_sigma_from_noise_std(convert.noise_std_from_multiplier(multiplier, **run), **run)
        assert convert.gdp_mu_per_step(multiplier, adjacency="replace-one") == pytest.approx(1 / sigma, rel=1e-14)

    def test_no_noise_is_zero_in_every_convention(self):
        run = {"clip_norm": 1.0, "batch_size": 10}
        assert convert.noise_std_from_multiplier(0, **run) == 0.0
        assert convert.noise_multiplier_from_std(0, **run) == 0.0
        assert convert.dong_sigma_from_noise_std(0, **run) == 0.0

    @pytest.mark.parametrize(
        ("convert_noise", "name"),
        [
            (convert.noise_std_from_multiplier, "noise_multiplier"),
            (convert.noise_multiplier_from_std, "noise_std"),
            (convert.dong_sigma_from_noise_std, "noise_std"),
        ],
    )
    def test_bad_input_names_the_argument(self, convert_noise, name):
        for bad in (-1.0, NAN, INF, "1"):
            with pytest.raises(InvalidArgument, match=name):
                convert_noise(bad, clip_norm=1.0, batch_size=10)
        for bad in (0.0, -1.0, NAN, INF):
            with pytest.raises(InvalidArgument, match="clip_norm"):
                convert_noise(1.0, clip_norm=bad, batch_size=10)
        for bad in (0, -3, 2.5, NAN):
            with pytest.raises(InvalidArgument, match="batch_size"):
                convert_noise(1.0, clip_norm=1.0, batch_size=bad)


class TestGdpMuPerStep:
    def test_both_adjacencies(self):
        assert convert.gdp_mu_per_step(0.5, adjacency="replace-one") == 4.0
        assert convert.gdp_mu_per_step(0.5, adjacency="add-remove") == 2.0

    def test_no_noise_is_no_privacy(self):
        assert convert.gdp_mu_per_step(0.0, adjacency="add-remove") == INF

    def test_bad_input(self):
        with pytest.raises(InvalidArgument, match="adjacency"):
            convert.gdp_mu_per_step(1.0, adjacency="replace_one")
        with pytest.raises(InvalidArgument, match="noise_multiplier"):
            convert.gdp_mu_per_step(-1.0, adjacency="replace-one")


class TestGdpAndGmip:
    def test_corollary_as_it_stands(self):
        sizes = {"num_params": 650, "batch_size": 500}
        expected = 2.0 / math.sqrt(650 / 0.8**2 - 500.5)
        assert convert.corollary_gdp_mu_from_gmip_mu(0.8, **sizes) == pytest.approx(expected, rel=1e-14)
        assert convert.gdp_mu_from_gmip_mu(0.8, **sizes) == 0.8  # what a step that is 0.8-GMIP through 0.8-GDP has
        assert convert.corollary_gdp_mu_from_gmip_mu(2.0, **sizes) == INF

    def test_formula(self):
        # docs/theory/conversions.md by hand: d = 650, n = 500, mu_DP = 2.
        expected = math.sqrt(650 / (500 + 4 / 4 + 0.5))
        assert convert.gmip_mu_from_gdp_mu(2.0, num_params=650, batch_size=500) == pytest.approx(expected, rel=1e-14)
        inverse = 2 / math.sqrt(650 / 1.1**2 - 500.5)
        assert convert.gdp_mu_from_gmip_mu(1.1, num_params=650, batch_size=500) == pytest.approx(
            max(inverse, 1.1), rel=1e-12
        )

    @pytest.mark.parametrize(("num_params", "batch_size"), [(650, 500), (2580, 1970), (1026, 790)])
    def test_no_noise_gives_the_paper_s_one_step_level(self, num_params, batch_size):
        sizes = {"num_params": num_params, "batch_size": batch_size}
        ceiling = math.sqrt(2 * num_params / (2 * batch_size + 1))
        assert convert.gmip_mu_from_gdp_mu(INF, **sizes) == pytest.approx(ceiling, rel=1e-14)
        assert ceiling == pytest.approx(1.14, abs=0.005)
        assert convert.gdp_mu_from_gmip_mu(ceiling * (1 + 1e-12), **sizes) == INF
        assert convert.gdp_mu_from_gmip_mu(INF, **sizes) == INF

    def test_zero_stays_zero(self):
        assert convert.gmip_mu_from_gdp_mu(0.0, num_params=3, batch_size=4) == 0.0
        assert convert.gdp_mu_from_gmip_mu(0.0, num_params=3, batch_size=4) == 0.0

    @given(log10_share=st.floats(-3.0, 12.0), num_params=sizes, batch_size=sizes)
    def test_round_trip(self, log10_share, num_params, batch_size):
        sizes = {"num_params": num_params, "batch_size": batch_size}
        # share = (4/mu^2) / (n + 1/2): where it is tiny, a change of gdp_mu no longer shows in gmip_mu.
        gdp_mu = 2 / math.sqrt(10**log10_share * (batch_size + 0.5))
        gmip_mu = convert.gmip_mu_from_gdp_mu(gdp_mu, **sizes)
        assert convert.gdp_mu_from_gmip_mu(gmip_mu, **sizes) == pytest.approx(gdp_mu, rel=1e-11)

    @given(part=st.floats(1e-9, 0.99), num_params=st.integers(5, 10**9), batch_size=sizes)
    def test_below_this_level_both_are_the_same(self, part, num_params, batch_size):
        sizes = {"num_params": num_params, "batch_size": batch_size}
        mu = math.sqrt(part * (num_params - 4) / (batch_size + 0.5))
        assert convert.gmip_mu_from_gdp_mu(mu, **sizes) == mu
        assert convert.gdp_mu_from_gmip_mu(mu, **sizes) == mu

    @given(gdp_mu=st.floats(1e-300, 1e300), num_params=sizes, batch_size=sizes)
    def test_mip_is_never_weaker_than_dp(self, gdp_mu, num_params, batch_size):
        sizes = {"num_params": num_params, "batch_size": batch_size}
        assert 0.0 < convert.gmip_mu_from_gdp_mu(gdp_mu, **sizes) <= gdp_mu
        assert convert.gdp_mu_from_gmip_mu(gdp_mu, **sizes) >= gdp_mu

    def test_inverse_never_claims_more_dp_than_the_step_has(self):
        # The first term alone would say 0.02 for a step whose noise gives 1-GDP.
        sizes = {"num_params": 10_000, "batch_size": 10}
        assert convert.gmip_mu_from_gdp_mu(1.0, **sizes) == 1.0
        assert convert.gdp_mu_from_gmip_mu(1.0, **sizes) == 1.0

    def test_bad_input(self):
        for call, name in ((convert.gmip_mu_from_gdp_mu, "gdp_mu"), (convert.gdp_mu_from_gmip_mu, "gmip_mu")):
            for bad in (-1.0, NAN, -INF):
                with pytest.raises(InvalidArgument, match=name):
                    call(bad, num_params=10, batch_size=10)
            with pytest.raises(InvalidArgument, match="num_params"):
                call(1.0, num_params=0, batch_size=10)
            with pytest.raises(InvalidArgument, match="batch_size"):
                call(1.0, num_params=10, batch_size=0.5)


class TestEpsilonDelta:
    def test_at_epsilon_zero_delta_is_the_advantage(self):
        for mu in (1e-6, 0.3, 1.0, 5.0):
            assert convert.delta_from_mu(mu, epsilon=0.0) == pytest.approx(math.erf(mu / math.sqrt(8)), rel=1e-13)

    @given(mu=mus, delta=deltas)
    def test_epsilon_is_the_smallest(self, mu, delta):
        epsilon = convert.epsilon_from_mu(mu, delta=delta)
        assert convert.delta_from_mu(mu, epsilon=epsilon) <= delta * (1 + 1e-12)
        if epsilon > 0.0:
            assert convert.delta_from_mu(mu, epsilon=math.nextafter(epsilon, 0.0)) >= delta * (1 - 1e-12)

    @given(epsilon=epsilons, delta=deltas)
    def test_mu_is_the_largest(self, epsilon, delta):
        mu = convert.mu_from_epsilon_delta(epsilon=epsilon, delta=delta)
        assert convert.delta_from_mu(mu, epsilon=epsilon) <= delta * (1 + 1e-12)
        assert convert.delta_from_mu(math.nextafter(mu, INF), epsilon=epsilon) >= delta * (1 - 1e-12)

    @given(mu=mus, part=st.floats(1e-300, 0.99))
    def test_round_trip(self, mu, part):
        delta = part * min(0.5, convert.delta_from_mu(mu, epsilon=0.0))
        epsilon = convert.epsilon_from_mu(mu, delta=delta)
        assert convert.mu_from_epsilon_delta(epsilon=epsilon, delta=delta) == pytest.approx(mu, rel=1e-10)

    @given(mu=mus, epsilon=epsilons, factor=st.floats(1.001, 10.0))
    def test_monotone(self, mu, epsilon, factor):
        delta = convert.delta_from_mu(mu, epsilon=epsilon)
        assert 0.0 <= delta <= 1.0
        assert convert.delta_from_mu(mu, epsilon=factor * epsilon) <= delta * (1 + 1e-11)
        assert convert.delta_from_mu(factor * mu, epsilon=epsilon) >= delta * (1 - 1e-11)

    def test_no_epsilon_needed_when_delta_is_large_enough(self):
        assert convert.epsilon_from_mu(0.1, delta=0.05) == 0.0
        assert convert.epsilon_from_mu(0.1, delta=convert.delta_from_mu(0.1, epsilon=0.0)) == 0.0

    def test_ends(self):
        assert convert.delta_from_mu(0.0, epsilon=0.0) == 0.0
        assert convert.delta_from_mu(INF, epsilon=3.0) == 1.0
        assert convert.delta_from_mu(1.0, epsilon=INF) == 0.0
        assert convert.delta_from_mu(1e-6, epsilon=1e3) == 0.0
        assert convert.delta_from_mu(1e300, epsilon=1e300) == 1.0
        assert convert.epsilon_from_mu(0.0, delta=0.0) == 0.0
        assert convert.epsilon_from_mu(1.0, delta=0.0) == INF
        assert convert.epsilon_from_mu(INF, delta=0.5) == INF
        assert convert.epsilon_from_mu(1e200, delta=0.5) == INF
        assert convert.epsilon_from_mu(INF, delta=1.0) == 0.0
        assert convert.mu_from_epsilon_delta(epsilon=1.0, delta=0.0) == 0.0
        assert convert.mu_from_epsilon_delta(epsilon=1.0, delta=1.0) == INF
        assert convert.mu_from_epsilon_delta(epsilon=INF, delta=0.1) == INF

    @given(mu=st.floats(0.0, INF), epsilon=st.floats(0.0, INF), delta=st.floats(0.0, 1.0))
    def test_any_float_in_the_domain_has_an_answer(self, mu, epsilon, delta):
        assert 0.0 <= convert.delta_from_mu(mu, epsilon=epsilon) <= 1.0
        assert convert.epsilon_from_mu(mu, delta=delta) >= 0.0
        assert convert.mu_from_epsilon_delta(epsilon=epsilon, delta=delta) >= 0.0

    def test_bad_input(self):
        for bad in (-1.0, NAN, "1"):
            with pytest.raises(InvalidArgument, match="mu"):
                convert.delta_from_mu(bad, epsilon=1.0)
            with pytest.raises(InvalidArgument, match="epsilon"):
                convert.delta_from_mu(1.0, epsilon=bad)
            with pytest.raises(InvalidArgument, match="mu"):
                convert.epsilon_from_mu(bad, delta=0.1)
            with pytest.raises(InvalidArgument, match="epsilon"):
                convert.mu_from_epsilon_delta(epsilon=bad, delta=0.1)
        for bad in (-0.1, 1.1, NAN):
            with pytest.raises(InvalidArgument, match="delta"):
                convert.epsilon_from_mu(1.0, delta=bad)
            with pytest.raises(InvalidArgument, match="delta"):
                convert.mu_from_epsilon_delta(epsilon=1.0, delta=bad)
