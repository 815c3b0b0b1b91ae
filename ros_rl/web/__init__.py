"""The page that shows a robot in a browser; needs no ROS."""
