"""Addresses of the reports' REST interface, below /api/v1/."""

from rest_framework.routers import SimpleRouter

from spark.api import ReportViews, RunViews

router = SimpleRouter()
router.register("reports", ReportViews, basename="report")
router.register("report-runs", RunViews, basename="report-run")
urlpatterns = router.urls
